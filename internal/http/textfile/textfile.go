// SPDX-License-Identifier: Apache-2.0

// Package textfile reads the text files that flags name, whatever editor or shell wrote them.
package textfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// UTF8 returns a file in UTF-8, without a byte order mark. A file in UTF-16 needs a mark, which Windows PowerShell writes
// by itself. UTF8 does not check a file that has no mark.
func UTF8(data []byte) ([]byte, error) {
	if data, ok := bytes.CutPrefix(data, []byte("\xef\xbb\xbf")); ok {
		return data, nil
	}
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe\x00\x00")):
		return nil, errors.New("it is in UTF-32; save it as UTF-8")
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	case bytes.IndexByte(data[:min(len(data), 2)], 0) >= 0: // a file in UTF-8 has no NUL
		return nil, errors.New("it is in UTF-16 without a byte order mark; save it as UTF-8")
	default:
		return data, nil
	}
	if len(data)%2 != 0 {
		return nil, errors.New("it is in UTF-16, and ends in half a character; save it as UTF-8")
	}
	var units []uint16
	for i := 2; i < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return []byte(string(utf16.Decode(units))), nil
}

// FirstLine returns the first line of a file that holds a secret, without white space around it. So what one editor adds
// and another does not, a mark or a space that nobody sees, does not make another secret.
func FirstLine(data []byte) (string, error) {
	text, err := UTF8(data)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if !utf8.ValidString(line) || strings.ContainsRune(line, 0) {
		return "", errors.New("the first line is not text in UTF-8")
	}
	return strings.TrimSpace(line), nil
}
