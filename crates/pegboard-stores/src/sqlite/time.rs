//! Moments as the database keeps them: milliseconds since 1970.

use std::time::{Duration, SystemTime};

/// The last millisecond of the year 9999, which every system can represent.
const LAST: u64 = 253_402_300_799_999;

/// The milliseconds of a moment, or of the nearest moment that is kept.
pub(super) fn millis(moment: SystemTime) -> i64 {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(LAST).min(LAST);
    i64::try_from(millis).expect("the last moment is a small number")
}

/// The moment of some milliseconds, whatever stands in the file.
pub(super) fn moment(millis: i64) -> SystemTime {
    let millis = u64::try_from(millis).unwrap_or_default().min(LAST);
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_kept_to_the_millisecond_or_as_the_nearest_that_can_be() {
        let epoch = SystemTime::UNIX_EPOCH;
        let last = epoch + Duration::from_millis(LAST);
        for (given, expected) in [
            (epoch, epoch),
            (epoch + Duration::from_nanos(1_999_999), epoch + Duration::from_millis(1)),
            (epoch - Duration::from_secs(5), epoch),
            (last, last),
            (last + Duration::from_secs(1_000_000), last),
        ] {
            assert_eq!(moment(millis(given)), expected, "{given:?}");
        }
    }

    #[test]
    fn whatever_stands_in_the_file_is_some_moment() {
        for (stored, expected) in [(i64::MIN, 0), (-1, 0), (1, 1), (i64::MAX, LAST)] {
            assert_eq!(moment(stored), SystemTime::UNIX_EPOCH + Duration::from_millis(expected));
        }
    }
}
