package survey

import "context"

// Memory returns how many bytes a key of the limiter of that name takes, as far as Redis estimates it from a few of
// its members.
func (s *Survey) Memory(ctx context.Context, name, key string) (int64, error) {
	rdb, err := s.node(ctx, name)
	if err != nil {
		return 0, err
	}
	n, err := rdb.MemoryUsage(ctx, key).Result()
	if moved(err) {
		n, err = s.rdb.MemoryUsage(ctx, key).Result()
	}
	return n, err
}
