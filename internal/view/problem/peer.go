package problem

func (f *findings) peerAuthentication() {}
