// Package ports holds the interfaces between the core of Admitone and the world: the two
// stores, the dispatcher, the ledger that people read, and the door that deliveries
// come in by. It imports the domain and the standard library only.
//
// Every adapter of a store or a dispatcher passes the kit of its port: storetest, dispatchtest.
package ports
