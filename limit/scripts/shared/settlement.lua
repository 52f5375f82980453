-- SPDX-License-Identifier: Apache-2.0
-- ARGV[1] is "=by n taken from owed past@epoch", the settlement of a grant of n permits. It takes by permits, or gives them back
-- if by is below 0. The rest is the mark of the grant: the instant in us at which it was taken; the instant from which
-- on permits have come in for it, or that at which its window began; what the bucket lacked right after it; and what had been
-- given back to the bucket before. The epoch is empty if the grant can give nothing back. From here on own says whether the
-- state still has the grant in it.
local by, n, taken, from, owed, past, its = string.match(ARGV[1], '^=(%-?%d+) (%d+) (%d+) (%d+) (%d+) (%d+)@(.*)$')
by, n, taken, from = tonumber(by), tonumber(n), tonumber(taken), tonumber(from)
owed, past = tonumber(owed), tonumber(past)
local own = its ~= '' and its == epoch
