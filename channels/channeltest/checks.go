package channeltest

func always(Spec) bool { return true }

// checks are the promises of a channel, in the order in which they are best read.
var checks []check
