// Package httpdispatch hands events to an application by HTTP: one POST for each, a CloudEvent
// 1.0 in structured JSON, signed per Standard Webhooks (standardwebhooks.com).
//
// What it tells of a dispatch decides whether an event may be begun again, so "certainly not
// received" is said only if no byte of the request went out.
package httpdispatch
