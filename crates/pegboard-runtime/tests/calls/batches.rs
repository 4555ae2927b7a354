//! Several calls in one.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::board::{Log, board, call, caller, line};

async fn batch(settings: Value, server: Value, arguments: Value) -> Value {
    let runtime = board(&Log::default(), settings, server).await;
    let ended = call(&caller(&runtime), "agent__batch", arguments).await;
    match ended.result {
        Ok(output) if output.is_error() => Value::String(output.text().into_owned()),
        Ok(output) => output.into_data(),
        Err(error) => panic!("{error}"),
    }
}

/// Each result as `id tool ok code-or-output`.
fn lines(results: &Value) -> Vec<String> {
    let one = |result: &Value| {
        let rest = if result["ok"] == true { &result["output"] } else { &result["error"]["code"] };
        format!("{} {} {rest}", result["id"], result["tool"].as_str().unwrap())
    };
    results["results"].as_array().unwrap_or_else(|| panic!("{results}")).iter().map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn results_come_in_the_order_of_the_calls_with_their_ids() {
    let calls = json!([
        {"id": "slow", "tool": "t__nap", "parameters": {"ms": 50}},
        {"id": 7, "tool": "t__echo", "parameters": {"a": 1}},
    ]);
    let results = batch(json!({}), json!({}), json!({"calls": calls})).await;
    assert_eq!(lines(&results), [r#""slow" t__nap "rested""#, r#"7 t__echo {"a":1}"#]);
    assert_eq!(
        (&results["results"][0]["elapsedMs"], &results["results"][1]["elapsedMs"]),
        (&json!(50), &json!(0))
    );
}

#[tokio::test(start_paused = true)]
async fn what_models_write_is_understood() {
    let cases = [
        (json!(r#"[{"id":"a","tool":"t__echo","parameters":{}}]"#), r#""a" t__echo {}"#),
        (json!(r#"[{"id":"a","tool":"t__echo"}] and that is all"#), r#""a" t__echo {}"#),
        (json!([{"tool": "t__echo", "parameters": "{\"x\": 1}"}]), r#""call_0" t__echo {"x":1}"#),
        (json!([{"name": "t__echo", "arguments": {"x": 2}}]), r#""call_0" t__echo {"x":2}"#),
        (json!([{"tool": "t__echo", "params": {"x": 3}}]), r#""call_0" t__echo {"x":3}"#),
        (
            json!([{"tool": {"toolbox": "default", "server": "t", "name": "echo"}}]),
            r#""call_0" default/t/echo {}"#,
        ),
    ];
    for (calls, expected) in cases {
        let results = batch(json!({}), json!({}), json!({"calls": calls})).await;
        assert_eq!(lines(&results), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_batch_is_refused_in_known_words() {
    let none = "empty_batch: agent__batch received empty calls array (type: object)";
    let blank = "invalid_batch_input: each call requires non-empty id and tool";
    let cases = [
        (json!({"calls": []}), none),
        (json!({}), none),
        (
            json!({"calls": ""}),
            "empty_batch: agent__batch received empty or unparseable calls array (raw string length: 0)",
        ),
        (
            json!({"calls": "[{"}),
            "empty_batch: agent__batch received empty or unparseable calls array (raw string length: 2)",
        ),
        (json!({"calls": [{"id": " ", "tool": "t__echo"}]}), blank),
        (json!({"calls": [{"id": "a", "tool": ""}]}), blank),
        (json!({"calls": [{"id": "a"}]}), blank),
        (json!({"calls": [3]}), blank),
        (
            json!({"calls": [{"tool": "a", "name": "b"}]}),
            "invalid_batch_input: tool and name say different things; give one of them",
        ),
        (
            json!({"calls": [{"tool": "a"}], "mode": "sideways"}),
            "invalid_batch_input: mode must be 'parallel' or 'sequential'",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(batch(json!({}), json!({}), arguments.clone()).await, expected, "{arguments}");
    }
    let many = json!({"calls": vec![json!({"tool": "t__echo"}); 201]});
    let refused = batch(json!({}), json!({}), many).await;
    assert_eq!(refused, "invalid_batch_input: 201 calls are too many for one batch; make at most 200");
}

#[tokio::test(start_paused = true)]
async fn one_call_that_fails_is_its_own_affair() {
    let calls = json!([
        {"tool": "t__nothing"},
        {"tool": "t__fail"},
        {"tool": "t__panic"},
        {"tool": "t__nap", "parameters": {"ms": "long"}},
        {"tool": "agent__batch", "parameters": {"calls": [{"tool": "t__echo"}]}},
        {"tool": "batch"},
        {"tool": "agent__final_report"},
        {"tool": "t__echo"},
    ]);
    let results = batch(json!({}), json!({}), json!({"calls": calls})).await;
    let codes: Vec<&str> = results["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| result["error"]["code"].as_str().unwrap_or("ok"))
        .collect();
    assert_eq!(
        codes,
        [
            "UNKNOWN_TOOL",
            "EXECUTION_ERROR",
            "EXECUTION_ERROR",
            "BAD_REQUEST",
            "INTERNAL_NOT_ALLOWED",
            "INTERNAL_NOT_ALLOWED",
            "INTERNAL_NOT_ALLOWED",
            "ok",
        ]
    );
    assert_eq!(results["results"][1]["error"]["message"], "boom");
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_no_slot_and_has_no_time_limit_of_its_own() {
    let calls: Vec<Value> = (0..5).map(|_| json!({"tool": "t__nap", "parameters": {"ms": 80}})).collect();
    let settings = json!({"toolTimeout": 100, "queues": {"default": {"concurrent": 1}}});
    let started = Instant::now();
    let results = batch(settings.clone(), json!({}), json!({"calls": calls})).await;
    assert!(lines(&results).iter().all(|line| line.ends_with("\"rested\"")), "{results}");
    assert_eq!(started.elapsed(), Duration::from_millis(400));
    // The limit is for each of its calls.
    let calls = json!([{"tool": "t__nap", "parameters": {"ms": 101}}, {"tool": "t__echo"}]);
    let results = batch(settings, json!({}), json!({"calls": calls})).await;
    assert_eq!(results["results"][0]["error"]["kind"], "timeout");
    assert_eq!(results["results"][1]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn calls_can_be_made_one_after_another_and_stop_at_the_first_failure() {
    let calls = json!([
        {"tool": "t__nap", "parameters": {"ms": 10}}, {"tool": "t__fail"}, {"tool": "t__nap", "parameters": {"ms": 10}}
    ]);
    for (stop, last, elapsed) in
        [(false, r#""call_2" t__nap "rested""#, 20), (true, r#""call_2" t__nap "SKIPPED""#, 10)]
    {
        let started = Instant::now();
        let arguments = json!({"calls": calls, "mode": "sequential", "stopOnError": stop});
        assert_eq!(lines(&batch(json!({}), json!({}), arguments).await)[2], last);
        assert_eq!(started.elapsed(), Duration::from_millis(elapsed));
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_a_batch_drops_its_calls() {
    let log = Log::default();
    let runtime = board(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let calls = json!([{"tool": "t__gate"}, {"tool": "t__gate"}]);
    let running = tokio::spawn(caller.start(Call::new("batch", json!({"calls": calls}))));
    crate::board::settle().await;
    assert_eq!(log.n_begun(), 2);
    running.abort();
    crate::board::settle().await;
    assert_eq!(log.n_dropped(), 2);
    let tree = caller.tree().snapshot().to_string();
    assert_eq!(tree.matches("canceled").count(), 4, "the batch, its calls and what holds them: {tree}");
}

#[tokio::test(start_paused = true)]
async fn a_large_item_is_stored_and_the_batch_itself_is_not() {
    let results = batch(
        json!({"toolResponseMaxBytes": 300}),
        json!({}),
        json!({"calls": [{"tool": "t__big", "parameters": {"bytes": 1000}}, {"tool": "t__big", "parameters": {"bytes": 250}}]}),
    )
    .await;
    let text = results["results"][0]["output"].as_str().unwrap();
    assert!(text.starts_with("The output is too large to show"), "{text}");
    assert_eq!(results["results"][1]["output"].as_str().unwrap().len(), 250);
    assert!(
        !line(
            &call(
                &caller(&board(&Log::default(), json!({}), json!({})).await),
                "batch",
                json!({"calls": []})
            )
            .await
        )
        .is_empty()
    );
}
