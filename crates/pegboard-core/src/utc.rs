//! Dates and times in UTC.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;
/// Days from 0000-03-01, with which a cycle of 400 years begins, to 1970-01-01.
const DAYS_BEFORE_EPOCH: u64 = 719_468;
const DAYS_PER_CYCLE: u64 = 146_097;
/// 9999-12-31T23:59:59Z, the last second with a year of four digits.
const LAST_SECOND: u64 = 253_402_300_799;

/// A date and time in UTC, in the Gregorian calendar. `Display` writes it in RFC 3339 with milliseconds.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use pegboard_core::utc::UtcTime;
///
/// let time = UtcTime::from(UNIX_EPOCH + Duration::from_millis(1_767_319_445_006));
/// assert_eq!(time.to_string(), "2026-01-02T02:04:05.006Z");
/// assert_eq!(time.digits(), "20260102020405");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UtcTime {
    year: u64,
    month: u64,
    day: u64,
    second_of_day: u64,
    millis: u32,
}

impl UtcTime {
    /// Returns the fourteen digits from the year to the second.
    pub fn digits(self) -> String {
        let Self { year, month, day, .. } = self;
        let (hour, minute, second) = self.clock();
        format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    }

    fn clock(self) -> (u64, u64, u64) {
        let second = self.second_of_day;
        (second / 3600, second / 60 % 60, second % 60)
    }
}

impl From<SystemTime> for UtcTime {
    /// Times before 1970 and after 9999 become the first and the last one within.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = since.as_secs().min(LAST_SECOND);
        // In a year that begins in March, the leap day is the last one.
        let days = seconds / SECONDS_PER_DAY + DAYS_BEFORE_EPOCH;
        let day_of_cycle = days % DAYS_PER_CYCLE;
        let year_of_cycle = (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524
            - day_of_cycle / (DAYS_PER_CYCLE - 1))
            / 365;
        let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        // The months from March have 31, 30, 31, 30 and 31 days, over and over.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: days / DAYS_PER_CYCLE * 400 + year_of_cycle + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second_of_day: seconds % SECONDS_PER_DAY,
            millis: since.subsec_millis(),
        }
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { year, month, day, millis, .. } = self;
        let (hour, minute, second) = self.clock();
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> String {
        UtcTime::from(UNIX_EPOCH + Duration::from_secs(seconds)).digits()
    }

    #[test]
    fn known_moments_have_their_dates() {
        for (seconds, expected) in [
            (0, "19700101000000"),
            (68_169_599, "19720228235959"),
            (68_169_600, "19720229000000"),
            (68_256_000, "19720301000000"),
            (951_782_400, "20000229000000"),
            (951_868_800, "20000301000000"),
            (1_234_567_890, "20090213233130"),
            (1_798_761_599, "20261231235959"),
            (4_107_542_399, "21000228235959"),
            (4_107_542_400, "21000301000000"),
            (LAST_SECOND, "99991231235959"),
            (LAST_SECOND + 1, "99991231235959"),
        ] {
            assert_eq!(at(seconds), expected, "{seconds}");
        }
        assert_eq!(UtcTime::from(UNIX_EPOCH - Duration::from_secs(1)).digits(), "19700101000000");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for n_days in 0..DAYS_PER_CYCLE {
            let time = UtcTime::from(UNIX_EPOCH + Duration::from_secs(n_days * SECONDS_PER_DAY));
            assert_eq!((time.year, time.month, time.day), (year, month, day));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }
}
