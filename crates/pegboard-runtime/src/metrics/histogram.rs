//! A histogram of durations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in milliseconds and as written in seconds. The last bucket is unbounded.
pub(super) const BUCKETS: [(u64, &str); 16] = [
    (1, "0.001"),
    (5, "0.005"),
    (10, "0.01"),
    (20, "0.02"),
    (50, "0.05"),
    (100, "0.1"),
    (200, "0.2"),
    (500, "0.5"),
    (1_000, "1"),
    (2_000, "2"),
    (5_000, "5"),
    (10_000, "10"),
    (30_000, "30"),
    (60_000, "60"),
    (120_000, "120"),
    (300_000, "300"),
];

/// Counts per bucket, and the sum of all durations.
#[derive(Default)]
pub(super) struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    n_nanos: AtomicU64,
}

impl Histogram {
    pub(super) fn add(&self, duration: Duration) {
        let bucket = BUCKETS.partition_point(|(millis, _)| Duration::from_millis(*millis) < duration);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let n_nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.n_nanos.fetch_add(n_nanos, Ordering::Relaxed);
    }

    /// Returns the cumulative counts up to each bucket's bound; the last one is the total.
    pub(super) fn cumulative(&self) -> [u64; BUCKETS.len() + 1] {
        let mut n_so_far = 0;
        self.counts.each_ref().map(|count| {
            n_so_far += count.load(Ordering::Relaxed);
            n_so_far
        })
    }

    /// Returns the sum of all durations.
    pub(super) fn sum(&self) -> Duration {
        Duration::from_nanos(self.n_nanos.load(Ordering::Relaxed))
    }
}
