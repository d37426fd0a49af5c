// Package journal is the local journal: a folder of append-only files that take events while
// the durable store is out of reach.
//
// # Why files of its own
//
// An embedded database was the other choice. It keeps pages that it changes in place, so that
// one bad page can make all of the file unreadable, syncs twice for each commit, grows its
// file in steps and never shrinks it. A journal needs none of what that buys. Frames that are
// only ever appended, each with a checksum, lose to a torn write or to a bad sector what
// stands in it and nothing else; one sync makes any number of them durable; the size of the
// folder is the sum of the frames to the byte; and space is given back by deleting a file,
// which works on a full disk too.
//
// # Format
//
// A file is called FIRST-SALT.v1.journal: the sequence number of its first frame in 16 hex
// digits and a random number in 8. It holds frames and nothing else:
//
//	4 bytes  the salt
//	4 bytes  mark: LIVE, or GONE once the entry was removed
//	4 bytes  length of the receipt, big-endian
//	4 bytes  CRC-32C of the file's name, the length and the receipt, big-endian
//	         the receipt, as a message of Protocol Buffers
//
// The salt tells a frame from whatever a payload holds, as nobody outside can know it, and
// from what a deleted file left on the disk. The mark is the only thing that is ever written
// over, and any other value of it means LIVE: an entry may come twice, and is never lost by it.
// A receipt's message gets new fields under new numbers, and unknown ones are passed over; a
// change of the frames gets another v, and a file with a v that is not known is an error of
// Open, since to pass over it would be to lose it.
//
// # What is relied on
//
// Append returns after the file is synced, and the folder too if the file is new. A file whose
// write or sync failed is cut back to what was synced before and never written to again, because
// a second sync can succeed without the data that the first one lost; the next call begins
// another file. A file left by an earlier process is not written to either, apart from marks.
// The disk must not spoil bytes that were synced while it writes others next to them, and must
// keep what it says it has synced. The file system must be a local one.
//
// Bytes that can't be read are passed over and logged. At the end of a file that is a write
// which a crash cut short: nobody was told that it is kept. With readable entries behind them
// it may be damage: when the file is drained it is renamed to *.damaged instead of deleted, for
// people to look at, and no longer counts towards the bound.
package journal
