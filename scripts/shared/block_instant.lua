-- SPDX-License-Identifier: Apache-2.0
local a, b, c, d, e, f = byte(m, at, at + 5)
local t = ((((a % 4 * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
