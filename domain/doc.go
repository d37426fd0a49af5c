// Package domain holds the words of Admitone and every decision it takes: what an
// event is and when two deliveries speak of the same one, the states of a receipt
// and what may follow from each, and what follows from an answer of the application,
// from an expired lease or from a store that is out of reach.
//
// Everything here is a pure function over values. The package imports the standard
// library only and knows no transport, no store and no clock: time is an argument.
package domain
