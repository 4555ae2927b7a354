//! The batch tool.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ErrorKind, Executed};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{LocalProvider, ToolKind};
use pegboard_json::RawJson;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::calls::fixtures::{ExecutionLog, builder, call, caller, line, test_runtime};

async fn batch(settings: Value, server: Value, arguments: Value) -> Value {
    let runtime = test_runtime(&ExecutionLog::default(), settings, server).await;
    let ended = call(&caller(&runtime), "agent__batch", arguments).await;
    match ended.result {
        Ok(output) if output.is_error() => Value::String(output.text().into_owned()),
        Ok(output) => output.into_data(),
        Err(error) => Value::String(refusal(&error)),
    }
}

/// Returns the message of a batch that was refused because of its arguments, before any call.
fn refusal(error: &CallError) -> String {
    assert_eq!((error.kind(), error.executed()), (ErrorKind::InvalidParameters, Executed::No), "{error}");
    error.texts().join("; ")
}

/// Formats each result as `id tool ok code-or-output`.
fn lines(results: &Value) -> Vec<String> {
    let one = |result: &Value| {
        let rest = if result["ok"] == true { &result["output"] } else { &result["error"]["code"] };
        format!("{} {} {rest}", result["id"], result["tool"].as_str().unwrap())
    };
    results["results"].as_array().unwrap_or_else(|| panic!("{results}")).iter().map(one).collect()
}

/// A server tool with raw arguments and a raw answer.
struct RawTool(fn(&RawJson) -> Output);

impl Handler for RawTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        Box::pin(std::future::ready(Ok(self.0(call.raw_arguments()))))
    }
}

/// Runs a batch given as JSON text and returns its result. The server `s` has `spell`, which returns its
/// arguments as spelled, and `answer`, which returns its arguments as the result.
async fn run_batch_text(arguments: &str) -> Output {
    let tools = [
        ToolEntry::from_handler(
            "spell",
            "",
            Arc::new(RawTool(|arguments| {
                let part = json!({"type": "text", "text": arguments.as_str()});
                Output::result(json!({"content": [part]}).into())
            })),
        ),
        ToolEntry::from_handler(
            "answer",
            "",
            Arc::new(RawTool(|arguments| Output::result(arguments.clone()))),
        ),
    ];
    let server = serde_json::from_value(json!({"validateArguments": "server"})).unwrap();
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({}))
        .provide("s", LocalProvider::new(tools).of_kind(ToolKind::Mcp))
        .server_settings(server)
        .start()
        .await
        .unwrap();
    let arguments = RawJson::parse(arguments.to_owned().into()).unwrap();
    let result = caller(&runtime).start(Call::new("batch", arguments)).await.result;
    result.unwrap_or_else(|error| Output::failure(refusal(&error)))
}

/// Returns the results of a batch as raw JSON.
fn items(output: &Output) -> Vec<RawJson> {
    let results = output.to_result().at(&["structuredContent", "results"]);
    results.unwrap_or_else(|| panic!("{}", output.text())).items().collect()
}

#[tokio::test(start_paused = true)]
async fn arguments_reach_the_tool_verbatim() {
    let spellings = [
        r#"{"n":12345678901234567890123}"#,
        r#"{"n": 1e999, "a":1.0 , "A":-0}"#,
        r#"{"z":1,"a":{"y":2,"b":[3, 4]}}"#,
        r#"{"text":"\u0041\/\ud800"}"#,
        r#"{"twice":1,"twice":2}"#,
    ];
    for spelling in spellings {
        let quoted = serde_json::to_string(spelling).unwrap();
        let calls = format!(r#"[{{"tool":"s__spell","parameters":{spelling}}}]"#);
        let batches = [
            format!(r#"{{"calls":{calls}}}"#),
            format!(r#"{{"calls":[{{"tool":"s__spell","params":{quoted}}}]}}"#),
            format!(r#"{{"calls":{}}}"#, serde_json::to_string(&calls).unwrap()),
            format!(r#"{{"calls":{}}}"#, serde_json::to_string(&format!("{calls}] done")).unwrap()),
        ];
        for batch in batches {
            let items = items(&run_batch_text(&batch).await);
            assert_eq!(items[0].get("output").unwrap().text().unwrap(), spelling, "{batch}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_id_is_returned_as_spelled() {
    let cases = [
        ("7", "7"),
        ("1.50", "1.50"),
        ("-1E2", "-1E2"),
        ("12345678901234567890123", "12345678901234567890123"),
        (r#"" a ""#, r#""a""#),
        ("null", r#""call_0""#),
    ];
    for (id, expected) in cases {
        let batch = format!(r#"{{"calls":[{{"id":{id},"tool":"s__spell"}}]}}"#);
        assert_eq!(items(&run_batch_text(&batch).await)[0].get("id").unwrap().as_str(), expected);
    }
    let blank = "invalid_batch_input: each call requires non-empty id and tool";
    for id in ["true", "{}", "[1]", r#""""#] {
        let batch = format!(r#"{{"calls":[{{"id":{id},"tool":"s__spell"}}]}}"#);
        assert_eq!(run_batch_text(&batch).await.text(), blank, "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn duplicate_keys_are_refused() {
    let cases = [
        (
            r#"{"calls":[{"tool":"s__spell"},{"tool":"s__spell","t\u006fol":"s__answer"}]}"#,
            "invalid_batch_input: call 1 has duplicate key 'tool'",
        ),
        (
            r#"{"calls":"[{\"id\":1,\"tool\":\"s__spell\",\"id\":1}]"}"#,
            "invalid_batch_input: call 0 has duplicate key 'id'",
        ),
        (
            r#"{"calls":[{"tool":"s__spell"}],"calls":[]}"#,
            "invalid_batch_input: the batch has duplicate key 'calls'",
        ),
        (
            r#"{"calls":[{"tool":{"toolbox":"default","server":"s","name":"spell","name":"spell"}}]}"#,
            "invalid_batch_input: each call requires non-empty id and tool",
        ),
    ];
    for (batch, expected) in cases {
        let output = run_batch_text(batch).await;
        assert_eq!((output.is_error(), output.text().as_ref()), (true, expected));
    }
    // The arguments of a built-in tool are validated when it is called.
    let duplicate_keys = r#"{"calls":[{"tool":"t__echo","parameters":{"a":1,"a":2}}]}"#;
    assert_eq!(lines(&run_batch_text(duplicate_keys).await.data()), [r#""call_0" t__echo "BAD_REQUEST""#]);
}

#[tokio::test(start_paused = true)]
async fn answers_are_returned_unaltered() {
    let see = r#"{"type":"text","text":"see"}"#;
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png"}"#;
    let result = |parts: &str, rest: &str| format!(r#"{{"content":[{parts}]{rest}}}"#);
    let structured = r#"{"z":12345678901234567890123,"a": 1.0}"#;
    let with_structured = format!(r#","structuredContent":{structured}"#);
    let deep = |n: usize| format!(r#"{{"structuredContent":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    let pictured = result(&format!("{see},{image}"), &with_structured);
    let linked = result(r#"{"type":"resource_link","uri":"a:b","name":"b"}"#, r#","_meta":{"n": 1e2}"#);
    let odd = result(r#"{"type":"text"}"#, "");
    let cases = [
        (result(see, ""), r#""see""#.to_owned()),
        (result(&format!("{see},{see}"), r#","structuredContent":null"#), r#""seesee""#.to_owned()),
        (r#"{"content":"see"}"#.to_owned(), r#""see""#.to_owned()),
        (result(see, &with_structured), structured.to_owned()),
        (format!(r#"{{"structuredContent":{structured}}}"#), structured.to_owned()),
        (pictured.clone(), pictured),
        (linked.clone(), linked),
        (odd.clone(), odd),
        (result("", ""), result("", "")),
        ("{}".to_owned(), "{}".to_owned()),
        // One unreadable answer does not affect the others.
        (r#"{"structuredContent":[1e999]}"#.to_owned(), r#""[1e999]""#.to_owned()),
        (deep(122), format!("{}{}", "[".repeat(122), "]".repeat(122))),
        (deep(123), format!(r#""{}{}""#, "[".repeat(123), "]".repeat(123))),
    ];
    for (answer, expected) in cases {
        let parameters = serde_json::to_string(&answer).unwrap();
        let batch = format!(r#"{{"calls":[{{"tool":"s__answer","parameters":{parameters}}}]}}"#);
        let output = run_batch_text(&batch).await;
        assert_eq!(items(&output)[0].get("output").unwrap().as_str(), expected, "{answer}");
        // Text and structured content are the same.
        let result = output.to_result();
        assert_eq!(output.text(), result.get("structuredContent").unwrap().as_str());
        assert_eq!(output.data()["results"][0]["ok"], true, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_answers_are_returned_unaltered() {
    let answer = r#"{"content":[{"type":"text","text":"no"},{"type":"audio","data":"AA=="}],"isError":true}"#;
    let batch = format!(r#"{{"calls":[{{"id":1,"tool":"s__answer","parameters":{answer}}}]}}"#);
    let output = run_batch_text(&batch).await;
    assert!(!output.is_error());
    insta::assert_snapshot!(output.text(), @r#"{"results":[{"id":1,"tool":"s__answer","ok":false,"elapsedMs":0,"output":{"content":[{"type":"text","text":"no"},{"type":"audio","data":"AA=="}],"isError":true},"error":{"code":"EXECUTION_ERROR","message":"no"}}]}"#);
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
async fn variants_that_models_write_are_accepted() {
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
async fn an_invalid_batch_is_refused_with_the_documented_message() {
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
            "invalid_batch_input: tool and name conflict; give only one of them",
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
    assert_eq!(refused, "invalid_batch_input: 201 calls exceed the batch limit of 200");
}

#[tokio::test(start_paused = true)]
async fn a_failing_call_does_not_affect_the_others() {
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
async fn the_size_of_all_results_is_limited() {
    let call = |bytes: usize| json!({"tool": "t__big", "parameters": {"bytes": bytes}});
    let mut calls = vec![call(1 << 20); 70];
    calls.push(call(10));
    let results = batch(json!({}), json!({}), json!({"calls": calls, "mode": "sequential"})).await;
    let results = results["results"].as_array().unwrap();
    let n_ok = results.iter().filter(|result| result["ok"] == true).count();
    assert_eq!((results.len(), n_ok), (71, 62), "the small one at the end fits");
    let discarded = &results[69];
    assert_eq!((&discarded["error"]["kind"], &discarded["output"]), (&json!("limit_exceeded"), &Value::Null));
    insta::assert_snapshot!(discarded["error"]["message"].as_str().unwrap(), @"the result was discarded: 1069 KiB do not fit: chains and batches hold 65179 of at most 65536 KiB; the tool has run; let it return less, or use several batches");
}

#[tokio::test(start_paused = true)]
async fn a_batch_holds_no_slot_and_has_no_time_limit_of_its_own() {
    let calls: Vec<Value> = (0..5).map(|_| json!({"tool": "t__nap", "parameters": {"ms": 80}})).collect();
    let settings = json!({"toolTimeout": 100, "queues": {"default": {"concurrent": 1}}});
    let started = Instant::now();
    let results = batch(settings.clone(), json!({}), json!({"calls": calls})).await;
    assert!(lines(&results).iter().all(|line| line.ends_with("\"rested\"")), "{results}");
    assert_eq!(started.elapsed(), Duration::from_millis(400));
    // The timeout applies to each call of the batch.
    let calls = json!([{"tool": "t__nap", "parameters": {"ms": 101}}, {"tool": "t__echo"}]);
    let results = batch(settings, json!({}), json!({"calls": calls})).await;
    assert_eq!(results["results"][0]["error"]["kind"], "timeout");
    assert_eq!(results["results"][1]["ok"], true);
}

#[tokio::test(start_paused = true)]
async fn sequential_calls_can_stop_at_the_first_failure() {
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
    let log = ExecutionLog::default();
    let runtime = test_runtime(&log, json!({}), json!({})).await;
    let caller = caller(&runtime);
    let calls = json!([{"tool": "t__gate"}, {"tool": "t__gate"}]);
    let running = tokio::spawn(caller.start(Call::new("batch", json!({"calls": calls}))));
    crate::calls::fixtures::settle().await;
    assert_eq!(log.n_begun(), 2);
    running.abort();
    crate::calls::fixtures::settle().await;
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
    let (large, small) = (&results["results"][0], &results["results"][1]);
    let text = large["output"].as_str().unwrap();
    assert!(text.starts_with("The output is too large to show"), "{text}");
    assert!(text.contains(large["stored"].as_str().unwrap()), "{large}");
    assert_eq!(large["tokens"], text.chars().count().div_ceil(4));
    assert_eq!(small["output"].as_str().unwrap().len(), 250);
    assert_eq!((small.get("stored"), small.get("tokens")), (None, None));
    assert!(
        !line(
            &call(
                &caller(&test_runtime(&ExecutionLog::default(), json!({}), json!({})).await),
                "batch",
                json!({"calls": []})
            )
            .await
        )
        .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn warnings_are_reported_and_absent_members_omitted() {
    let loose = ToolEntry::from_fn("loose", "", |_: Value| async { Ok(json!("done")) })
        .with_input_schema(json!({"type": "object", "properties": {"a": {"pattern": "(?=b)"}}}));
    let runtime =
        pegboard_runtime::Runtime::builder().provide("l", LocalProvider::new([loose])).start().await.unwrap();
    let calls = json!([{"tool": "l__loose", "parameters": {}}, {"tool": "l__none"}, {"tool": "batch"}]);
    let ended = call(&caller(&runtime), "batch", json!({"calls": calls})).await;
    insta::assert_snapshot!(format!("{:#}", ended.result.unwrap().data()), @r#"
    {
      "results": [
        {
          "id": "call_0",
          "tool": "l__loose",
          "ok": true,
          "elapsedMs": 0,
          "output": "done",
          "warnings": [
            "the pattern at /properties/a/pattern is not checked: it is invalid, too large, or uses look-around or back-references"
          ]
        },
        {
          "id": "call_1",
          "tool": "l__none",
          "ok": false,
          "elapsedMs": 0,
          "error": {
            "code": "UNKNOWN_TOOL",
            "kind": "unknown_tool",
            "message": "Unknown tool: l__none. Did you mean 'l__loose'?"
          }
        },
        {
          "id": "call_2",
          "tool": "batch",
          "ok": false,
          "elapsedMs": 0,
          "error": {
            "code": "INTERNAL_NOT_ALLOWED",
            "message": "'batch' cannot be called in a batch"
          }
        }
      ]
    }
    "#);
}
