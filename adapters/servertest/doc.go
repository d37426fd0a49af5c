// Package servertest starts the real servers that adapters are tested against: each test
// its own, on a free port of the loopback interface and in a temporary folder. A machine
// that lacks the program fails the test; nothing is skipped.
package servertest
