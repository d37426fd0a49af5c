//go:build !linux

package load

import "errors"

func drive(Job, [][]byte) (tally, error) { return tally{}, errors.New("the benchmark needs Linux") }
