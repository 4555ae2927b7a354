//! Stored timestamps: milliseconds since 1970.

use std::time::{Duration, SystemTime};

/// The last millisecond of the year 9999, which every system can represent.
const MAX_MILLIS: u64 = 253_402_300_799_999;

/// Converts a time to milliseconds, clamped to the stored range.
pub(super) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(MAX_MILLIS).min(MAX_MILLIS);
    i64::try_from(millis).expect("the maximum fits into 64 bits")
}

/// Converts stored milliseconds to a time, clamped to the valid range.
pub(super) fn from_millis(millis: i64) -> SystemTime {
    let millis = u64::try_from(millis).unwrap_or_default().min(MAX_MILLIS);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_truncated_to_milliseconds_and_clamped() {
        let epoch = SystemTime::UNIX_EPOCH;
        let last = epoch + Duration::from_millis(MAX_MILLIS);
        for (given, expected) in [
            (epoch, epoch),
            (epoch + Duration::from_nanos(1_999_999), epoch + Duration::from_millis(1)),
            (epoch - Duration::from_secs(5), epoch),
            (last, last),
            (last + Duration::from_secs(1_000_000), last),
        ] {
            assert_eq!(from_millis(millis(given)), expected, "{given:?}");
        }
    }

    #[test]
    fn every_stored_number_is_a_valid_time() {
        for (stored, expected) in [(i64::MIN, 0), (-1, 0), (1, 1), (i64::MAX, MAX_MILLIS)] {
            assert_eq!(from_millis(stored), SystemTime::UNIX_EPOCH + Duration::from_millis(expected));
        }
    }
}
