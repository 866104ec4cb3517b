package main

import (
	"fmt"
	"sync"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/pilotmesh/pilot/test/cluster/mesh"
)

// edits records when the API server reports edits of the bookstore's rules. Its goroutines are the informers'; close ends them.
type edits struct {
	stop      chan struct{}
	informers dynamicinformer.DynamicSharedInformerFactory

	mu   sync.Mutex
	last time.Time // of the edit that take has not returned yet; zero if there is none
}

// follow watches the rules, and returns when the existing rules are known.
func follow(config *rest.Config) (*edits, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("a client for Istio's resources: %w", err)
	}
	e := &edits{stop: make(chan struct{}), informers: dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, mesh.Namespace, nil)}
	for _, resource := range []string{"virtualservices", "destinationrules", "sidecars"} {
		of := schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: resource}
		if _, err := e.informers.ForResource(of).Informer().AddEventHandler(e.handler()); err != nil {
			return nil, fmt.Errorf("watching %s: %w", resource, err)
		}
	}
	e.informers.Start(e.stop)
	e.informers.WaitForCacheSync(e.stop)
	return e, nil
}

func (e *edits) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, initial bool) {
			if !initial {
				e.note()
			}
		},
		// Another generation is another spec. A list after an interruption also reports unchanged objects.
		UpdateFunc: func(was, is any) {
			if was.(meta.Object).GetGeneration() != is.(meta.Object).GetGeneration() {
				e.note()
			}
		},
		DeleteFunc: func(any) { e.note() },
	}
}

func (e *edits) note() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = time.Now()
}

// take returns the time of the last edit since take was called last.
func (e *edits) take() (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.last
	e.last = time.Time{}
	return at, !at.IsZero()
}

func (e *edits) close() {
	close(e.stop)
	e.informers.Shutdown()
}
