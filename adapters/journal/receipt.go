package journal

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/admitone/admitone/domain"
)

// A field is one of a receipt: its number in the message, which is never given to another,
// and where its value stands.
type field struct {
	number protowire.Number
	at     any // *string, *int, *int64, *time.Time, *[]byte or *domain.Digest
}

func fields(r *domain.Receipt) []field {
	return []field{
		{1, &r.ID},
		{2, &r.Key.Tenant},
		{3, &r.Key.Platform},
		{4, &r.Key.Account},
		{5, &r.Key.EventID},
		{6, &r.Channel},
		{7, &r.Installation},
		{8, &r.MessageKey},
		{9, (*string)(&r.Kind)},
		{10, &r.Conversation},
		{11, &r.Digest},
		{12, (*string)(&r.Guarantee)},
		{13, (*string)(&r.State)},
		{14, &r.Attempt},
		{15, &r.Deliveries},
		{16, &r.VendorAttempt},
		{17, &r.ClaimedAt},
		{18, &r.BegunAt},
		{19, &r.HandledAt},
		{20, &r.LeaseUntil},
		{21, &r.DueAt},
		{22, &r.Holder},
		{23, &r.LastError},
		{24, &r.Seq},
		{25, &r.Payload.MediaType},
		{26, &r.Payload.Body},
		{27, &r.ConversationID},
	}
}

// appendReceipt appends r as a message to b. What is zero is left out. Times keep their
// instant, to the nanosecond, and lose their zone.
func appendReceipt(b []byte, r *domain.Receipt) []byte {
	for _, f := range fields(r) {
		switch at := f.at.(type) {
		case *string:
			if *at != "" {
				b = protowire.AppendTag(b, f.number, protowire.BytesType)
				b = protowire.AppendString(b, *at)
			}
		case *[]byte:
			if len(*at) > 0 {
				b = protowire.AppendTag(b, f.number, protowire.BytesType)
				b = protowire.AppendBytes(b, *at)
			}
		case *domain.Digest:
			if !at.IsZero() {
				b = protowire.AppendTag(b, f.number, protowire.BytesType)
				b = protowire.AppendBytes(b, at[:])
			}
		case *int:
			if *at != 0 {
				b = appendNumber(b, f.number, int64(*at))
			}
		case *int64:
			if *at != 0 {
				b = appendNumber(b, f.number, *at)
			}
		case *time.Time:
			if !at.IsZero() {
				b = appendNumber(b, f.number, at.UnixNano())
			}
		}
	}
	return b
}

func appendNumber(b []byte, number protowire.Number, v int64) []byte {
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, protowire.EncodeZigZag(v))
}

// parseReceipt reads what appendReceipt wrote and passes over fields that it does not know.
// The payload of the receipt shares memory with b.
func parseReceipt(b []byte) (domain.Receipt, error) {
	var r domain.Receipt
	known := fields(&r)
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return domain.Receipt{}, fmt.Errorf("read a field's tag: %w", protowire.ParseError(n))
		}
		b = b[n:]
		var (
			number64 uint64
			text     []byte
		)
		switch kind { //nolint:exhaustive // the other types are those of fields that are not known
		case protowire.VarintType:
			number64, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return domain.Receipt{}, fmt.Errorf("read field %d: %w", number, protowire.ParseError(n))
		}
		b = b[n:]
		if int(number) <= len(known) {
			set(known[number-1], protowire.DecodeZigZag(number64), text)
		}
	}
	return r, nil
}

func set(f field, number int64, text []byte) {
	switch at := f.at.(type) {
	case *string:
		*at = string(text)
	case *[]byte:
		*at = text
	case *domain.Digest:
		copy(at[:], text)
	case *int:
		*at = int(number)
	case *int64:
		*at = number
	case *time.Time:
		*at = time.Unix(0, number).UTC()
	}
}
