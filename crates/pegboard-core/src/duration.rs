//! Human-readable durations: `30s`, `1.5h`, `1h30m`, or a number of milliseconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in human-readable form.
///
/// ```
/// use pegboard_core::duration::HumanDuration;
/// use std::time::Duration;
///
/// let read = |text: &str| text.parse::<HumanDuration>().map(Duration::from);
/// assert_eq!(read("2m").unwrap(), Duration::from_secs(120));
/// assert_eq!(read("1h30m").unwrap(), Duration::from_secs(5_400));
/// assert_eq!(read("250").unwrap(), Duration::from_millis(250));
/// assert!(read("soon").is_err());
/// assert_eq!(HumanDuration::from(Duration::from_secs(90)).to_string(), "1m30s");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HumanDuration(Duration);

/// A text that is not a valid duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duration must be a millisecond number, or a duration like 5m/2h/1d, not '{text}'")]
pub struct InvalidDuration {
    text: String,
}

/// Units in milliseconds, longest first. A month has 30 days and a year 365.
const UNITS: [(&str, u64); 8] = [
    ("y", 365 * 86_400_000),
    ("mo", 30 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

impl FromStr for HumanDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let invalid = || InvalidDuration { text: text.to_owned() };
        let mut rest = text.trim();
        if let Ok(millis) = rest.parse::<f64>() {
            return from_millis(millis).ok_or_else(invalid);
        }
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(invalid)?;
            let (number, after) = rest.split_at(digits);
            let after = after.trim_start();
            let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            let millis =
                UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name)).ok_or_else(invalid)?.1;
            let number: f64 = number.parse().map_err(|_| invalid())?;
            #[expect(clippy::cast_precision_loss, reason = "every unit is exact in f64")]
            let part = from_millis(number * millis as f64).ok_or_else(invalid)?;
            total = total.checked_add(part).ok_or_else(invalid)?;
            rest = after.trim_start();
        }
        if text.trim().is_empty() { Err(invalid()) } else { Ok(Self(total)) }
    }
}

/// Converts milliseconds to a duration; fractions of a millisecond are truncated.
fn from_millis<T: From<Duration>>(millis: f64) -> Option<T> {
    Duration::try_from_secs_f64(millis.trunc() / 1_000.0).ok().map(T::from)
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if rest == 0 {
            return f.write_str("0s");
        }
        for (name, millis) in UNITS.into_iter().filter(|(name, _)| !matches!(*name, "y" | "mo" | "w")) {
            if rest >= millis {
                write!(f, "{}{name}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

impl From<Duration> for HumanDuration {
    /// Rounds up to whole milliseconds, the smallest unit of the text form.
    fn from(duration: Duration) -> Self {
        let millis = duration.as_nanos().div_ceil(1_000_000);
        Self(Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX)))
    }
}

impl From<HumanDuration> for Duration {
    fn from(duration: HumanDuration) -> Self {
        duration.0
    }
}

impl JsonSchema for HumanDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({
            "description": "A duration like 30s or 1h30m, or a number of milliseconds.",
            "type": ["string", "number"],
            "minimum": 0,
            "examples": ["30s", "1h30m", 250],
        })
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HumanDurationVisitor;

        impl Visitor<'_> for HumanDurationVisitor {
            type Value = HumanDuration;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a millisecond number, or a duration like 5m/2h/1d")
            }

            fn visit_u64<E: serde::de::Error>(self, millis: u64) -> Result<HumanDuration, E> {
                Ok(HumanDuration(Duration::from_millis(millis)))
            }

            fn visit_i64<E: serde::de::Error>(self, millis: i64) -> Result<HumanDuration, E> {
                self.visit_str(&millis.to_string())
            }

            fn visit_f64<E: serde::de::Error>(self, millis: f64) -> Result<HumanDuration, E> {
                self.visit_str(&millis.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<HumanDuration, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_any(HumanDurationVisitor)
    }
}

/// Time to live of a cached result: a duration, or `off`.
///
/// ```
/// use pegboard_core::duration::Ttl;
/// use std::time::Duration;
///
/// assert_eq!("2m".parse::<Ttl>().unwrap().as_duration(), Some(Duration::from_secs(120)));
/// assert_eq!("off".parse::<Ttl>().unwrap().as_duration(), None);
/// assert_eq!("0".parse::<Ttl>().unwrap().as_duration(), None);
/// assert!("sometimes".parse::<Ttl>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ttl(Option<Duration>);

/// A text that is not a valid time to live.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cache duration must be 'off', a millisecond number, or a duration like 5m/2h/1d, not '{text}'")]
pub struct InvalidTtl {
    text: String,
}

impl Ttl {
    /// Returns the duration; `None` if caching is off.
    pub fn as_duration(self) -> Option<Duration> {
        self.0
    }
}

impl From<Duration> for Ttl {
    /// Limits the duration to a hundred years, so that adding it to a time cannot overflow.
    fn from(duration: Duration) -> Self {
        const MAX_TTL: Duration = Duration::from_hours(100 * 365 * 24);
        Self(Some(duration.min(MAX_TTL)).filter(|duration| !duration.is_zero()))
    }
}

impl FromStr for Ttl {
    type Err = InvalidTtl;

    fn from_str(text: &str) -> Result<Self, InvalidTtl> {
        let trimmed = text.trim();
        // Zero and negative values turn caching off.
        let is_off = trimmed.eq_ignore_ascii_case("off")
            || trimmed.parse::<f64>().is_ok_and(|millis| millis.is_finite() && millis <= 0.0);
        if is_off {
            return Ok(Self(None));
        }
        let read = trimmed.parse::<HumanDuration>().map_err(|_| InvalidTtl { text: text.to_owned() })?;
        Ok(Duration::from(read).into())
    }
}

impl JsonSchema for Ttl {
    fn schema_name() -> Cow<'static, str> {
        "CacheDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        json_schema!({
            "description": "A duration like 5m, a number of milliseconds, or off.",
            "type": ["string", "number"],
            "examples": ["5m", "off"],
        })
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(duration) => HumanDuration(duration).serialize(serializer),
            None => serializer.serialize_str("off"),
        }
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text.parse().map_err(serde::de::Error::custom),
            other => other.to_string().parse().map_err(serde::de::Error::custom),
        }
    }
}

/// Serializes a duration as a number of milliseconds.
pub(crate) fn serialize_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1_000.0)
}
