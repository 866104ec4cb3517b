package mesh

// NoKeys is a key set that verifies no token: its private key was never kept. An empty key set would make Envoy answer with another
// error.
const NoKeys = `{"keys":[{"kty":"RSA","e":"AQAB","n":"vO2Y1PttMmHPfYkTflNAOmDE6mj5-beLmiBQvKMeKASL-Eorm_bd950w6MtjBz9yj6Rw31uUWylYKoZ73sJAFCWj_p1ZVEycmEbcSd1JVlCmkrmZlofpq7HbvVgUcBy6emk7BEZyMV17o4bJjNLzvldakh8eLIxLn-aUnBUngwC9lBKDM91XZGvtQ2-lUBKe9SNi3O2reUjnJ9CsuGybQAHE3AZ0h_qI1MBpdwep796a5hwd_Z8TTdbd6DRSGwSFIqLT41necIrsdTA3EApRTkQu6M0mPN6amRHV59rVNlOFU9U0FobTjIZn-EdE-nXHhjvgrKRz-5nUbfkZDceFNw"}]}`
