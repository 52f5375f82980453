package limit

import "strings"

// subjectKeys returns the two keys of one limiter and subject. Their hash tag is the subject, or the name if
// there is no subject, so that they share a slot. The parameters are part of the keys, since the state of
// one limiter means nothing to a limiter with others.
func subjectKeys(name, subject, signature string) []string {
	key := "limit:{" + name + "}:" + signature
	if subject != "" {
		key = "limit:" + name + ":{" + braces.Replace(subject) + "}:" + signature
	}
	return []string{key, key + ":ids"}
}

// braces escapes what would end a hash tag early. With an empty tag the keys would be in different slots.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return invalid("the name %q is empty or contains braces, which are kept for the hash tag", name)
	}
	return nil
}
