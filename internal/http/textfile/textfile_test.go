// SPDX-License-Identifier: Apache-2.0

package textfile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFirstLine checks that a secret is the same one whatever editor or shell wrote its file, and that what is no text is an error.
func TestFirstLine(t *testing.T) {
	const secret = "s3cret é"
	for name, file := range map[string]string{
		"plain": secret, "a line": secret + "\n", "Windows": secret + "\r\n", "more lines": secret + "\nand more",
		"white space": " \t" + secret + " \t\r\n", "a mark": "\xef\xbb\xbf" + secret + "\n",
		"UTF-16":             "\xff\xfes\x003\x00c\x00r\x00e\x00t\x00 \x00\xe9\x00\r\x00\n\x00",
		"UTF-16, big endian": "\xfe\xff\x00s\x003\x00c\x00r\x00e\x00t\x00 \x00\xe9\x00\n",
	} {
		line, err := FirstLine([]byte(file))
		require.NoError(t, err, name)
		require.Equal(t, secret, line, name)
	}
	for want, files := range map[string][]string{
		"without a byte order mark":           {"s\x003\x00", "\x00s\x003"},
		"half a character":                    {"\xff\xfes"},
		"the first line is not text in UTF-8": {"s3cret \xe9\n", "s3c\x00ret\n", "\xff\xfes\x00\x00\x00"},
	} {
		for _, file := range files {
			_, err := FirstLine([]byte(file))
			require.ErrorContains(t, err, want, "%q", file)
		}
	}
	line, err := FirstLine(nil)
	require.NoError(t, err)
	require.Empty(t, line)
}
