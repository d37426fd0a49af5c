package journal

// A File is what the journal appends to.
type File = file

// Of the inner parts, what tests look at.
var (
	Create        = create
	OpenOn        = open
	AppendReceipt = appendReceipt
	ParseReceipt  = parseReceipt
)
