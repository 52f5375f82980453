package limit

import "strings"

// layout is part of the keys and is raised when the state that they hold is written in another way, so that
// processes of the old and the new version do not read each other's.
const layout = "limit2"

// keys returns the keys of one subject.
func (c *config) keys(subject string) []string {
	return subjectKeys(c.name, subject, c.signature, c.algorithm.script().Keys)
}

// subjectKeys returns the keys of one limiter and subject. Their hash tag is the subject, or the name if there
// is no subject, so that they share a slot. The parameters are part of the keys, since the state of one limiter
// means nothing to a limiter with others. Of the second, which few algorithms have, is what was granted to
// which process; the others have that in the first.
func subjectKeys(name, subject, signature string, count int) []string {
	key := layout + ":{" + name + "}:" + signature
	if subject != "" {
		key = layout + ":" + name + ":{" + braces.Replace(subject) + "}:" + signature
	}
	if count == 1 {
		return []string{key}
	}
	return []string{key, key + ":grants"}
}

// braces escapes what would end a hash tag early. With an empty tag the keys would be in different slots.
var braces = strings.NewReplacer("%", "%25", "}", "%7D")

func checkName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") {
		return invalid("the name %q is empty or contains braces, which are kept for the hash tag", name)
	}
	return nil
}
