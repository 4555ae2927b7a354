//! Human-readable durations.

use std::time::Duration;

use pegboard_core::duration::HumanDuration;
use serde_json::{Value, json};

fn check(written: &Value, millis: Option<u64>) {
    let read = serde_json::from_value::<HumanDuration>(written.clone()).map(Duration::from);
    assert_eq!(read.ok(), millis.map(Duration::from_millis), "{written}");
}

#[test]
fn numbers_are_milliseconds_and_units_are_parsed() {
    check(&json!(1500), Some(1_500));
    check(&json!(1.9), Some(1));
    check(&json!("1.9"), Some(1));
    check(&json!(" 250 "), Some(250));
    check(&json!("2m"), Some(120_000));
    check(&json!("1.5H"), Some(5_400_000));
    check(&json!("1h30m"), Some(5_400_000));
    check(&json!("1 h 30 min"), None);
    check(&json!("1d"), Some(86_400_000));
    check(&json!("1w"), Some(604_800_000));
    check(&json!("1mo"), Some(2_592_000_000));
    check(&json!("1y"), Some(31_536_000_000));
    check(&json!("500ms"), Some(500));
}

#[test]
fn invalid_durations_are_rejected() {
    for wrong in [
        json!(""),
        json!("soon"),
        json!(-1),
        json!("-1s"),
        json!("5 parsecs"),
        json!("1e400"),
        json!(null),
        json!("NaN"),
    ] {
        check(&wrong, None);
    }
    let error = "soon".parse::<HumanDuration>().unwrap_err().to_string();
    insta::assert_snapshot!(error, @"duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'");
}

#[test]
fn fractions_of_a_millisecond_are_rounded_up() {
    assert_eq!(HumanDuration::from(Duration::from_micros(500)).to_string(), "1ms");
    assert_eq!(HumanDuration::from(Duration::MAX).to_string().parse::<HumanDuration>().map(|_| ()), Ok(()));
}

#[test]
fn a_duration_round_trips() {
    for (millis, text) in
        [(0, "0s"), (1, "1ms"), (61_500, "1m1s500ms"), (90_000, "1m30s"), (172_800_000, "2d")]
    {
        let duration = HumanDuration::from(Duration::from_millis(millis));
        assert_eq!(duration.to_string(), text);
        assert_eq!(text.parse(), Ok(duration));
    }
}
