-- SPDX-License-Identifier: Apache-2.0
-- says reports whether an argument that consists of words has that one.
local function says(words, word)
  return string.find(words, word, 1, true) ~= nil
end
