// Package redis is the fast store that the instances of a deployment share: a Redis server,
// a cluster, or a set that Sentinel watches.
//
// Redis may only save work here. Whatever it does, stand still, restart empty, run full or
// answer nonsense, costs a look at the durable store: every such thing is an error of Seen,
// never "not handled" and never "handled", and none is waited for longer than the time-out.
package redis
