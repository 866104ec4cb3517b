// Package fetch reads answers of HTTP servers that may be of any size.
//
// The package has no goroutines.
package fetch

import (
	"fmt"
	"io"
	"net/http"
)

// Body makes a request and returns the body of the answer. An answer with another status than 200, or with more than limit bytes, is an
// error. No more than limit bytes are read, plus one.
func Body(client *http.Client, request *http.Request, limit int64) ([]byte, error) {
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer has status %s", answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(body)) > limit:
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return body, nil
}
