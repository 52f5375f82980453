package limit

import "strings"

// subjectKeys are the two keys of one limiter and subject. Both have the subject as their hash tag, the
// name where there is none, so that they share a slot; the numbers are in the key, since what one limiter
// has counted means nothing to one of other numbers.
func subjectKeys(name, subject, signature string) []string {
	key := "limit:{" + name + "}:" + signature
	if subject != "" {
		key = "limit:" + name + ":{" + braces.Replace(subject) + "}:" + signature
	}
	return []string{key, key + ":ids"}
}

// braces escapes what would end a hash tag early: with a tag that is empty the keys would be apart.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return invalid("the name %q is empty or has braces, which stand around the subject", name)
	}
	return nil
}
