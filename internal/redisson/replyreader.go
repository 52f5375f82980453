// SPDX-License-Identifier: Apache-2.0

package redisson

// A replyReader reads the elements of a reply, a list of numbers and texts, one after another. If an element is
// missing or has another type than requested, the reply is bad, and that element and all later ones are read as zero.
type replyReader struct {
	list []any
	bad  bool
}

func readerOf(raw any) replyReader {
	list, ok := raw.([]any)
	return replyReader{list: list, bad: !ok}
}

// number reads a number.
func (f *replyReader) number() int64 { return element[int64](f) }

// text reads a text.
func (f *replyReader) text() string { return element[string](f) }

// any reads a number or a text.
func (f *replyReader) any() any { return element[any](f) }

// numbers reads the rest, which are numbers.
func (f *replyReader) numbers() []int64 {
	list := make([]int64, 0, len(f.list))
	for !f.bad && len(f.list) > 0 {
		list = append(list, f.number())
	}
	return list
}

// whole reports whether all requested elements were there, and none is left.
func (f *replyReader) whole() bool { return !f.bad && len(f.list) == 0 }

func element[T any](f *replyReader) (v T) {
	if f.bad || len(f.list) == 0 {
		f.bad = true
		return v
	}
	v, ok := f.list[0].(T)
	f.list, f.bad = f.list[1:], !ok
	return v
}

// readStatus reads the status at the beginning of a reply of s, and returns the rest. It reports whether the script
// is to start over. For every other status but statusOK it returns an error.
func (l *Limiter) readStatus(s *Script, raw any) (f replyReader, startOver bool, err error) {
	f = readerOf(raw)
	status := f.number()
	switch {
	case f.bad:
		return f, false, l.badReply(s, raw)
	case status == statusOK || status == statusStartOver:
		return f, status == statusStartOver, nil
	}
	all, err := l.numbers(s, raw)
	if err == nil {
		err = l.statusError(all)
	}
	return f, false, err
}
