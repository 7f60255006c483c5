package edge

import (
	"context"
	"sync"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// A client may send a call before it has the answer to the one before, and rely on their order: Node.js
// sends the whole set of its lite subscriptions at its start, and the first change of it right after.
// grpc-go runs each call on a goroutine of its own, where the second can overtake the first. So calls
// of inOrder wait for their turn: it is taken on the goroutine that reads the connection, in the order of
// arrival, and ends with the call. Calls of other connections are not waited for: one of them may never end,
// if its network is gone or its client is a stranger that uses the same id.

// inOrder is the method whose calls are handled one after another for each client and connection.
const inOrder = "/" + serviceName + "/SyncLiteSubscription"

const headerClientID = "x-mq-client-id"

// turns are the calls of inOrder that have not ended.
type turns struct {
	mu   sync.Mutex
	last map[turnOf]chan struct{} // of each client that has such calls: closed when all of them have ended
}

// turnOf is a client on one connection.
type turnOf struct{ client, addr string }

type turnKey struct{}

// take gives a call its turn: what it has to wait for is in the context.
func (t *turns) take(ctx context.Context, call *tap.Info) (context.Context, error) {
	if call.FullMethodName != inOrder {
		return ctx, nil
	}
	id := call.Header.Get(headerClientID)
	if len(id) == 0 {
		return ctx, nil
	}
	client, mine := turnOf{client: id[0]}, make(chan struct{})
	if p, ok := peer.FromContext(ctx); ok {
		client.addr = p.Addr.String()
	}
	t.mu.Lock()
	before := t.last[client]
	if t.last == nil {
		t.last = map[turnOf]chan struct{}{}
	}
	t.last[client] = mine
	t.mu.Unlock()
	context.AfterFunc(ctx, func() { t.end(client, before, mine) })
	if before == nil {
		return ctx, nil
	}
	return context.WithValue(ctx, turnKey{}, before), nil
}

// end passes the turn on, once the calls before have ended too.
func (t *turns) end(client turnOf, before, mine chan struct{}) {
	if before != nil {
		<-before
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	close(mine)
	if t.last[client] == mine {
		delete(t.last, client)
	}
}

// await returns when it is the call's turn, with an error if it has no sense any more.
func (s *Server) await(ctx context.Context) error {
	before, ok := ctx.Value(turnKey{}).(chan struct{})
	if !ok {
		return nil
	}
	select {
	case <-before:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-s.forced:
		return errForced
	}
}
