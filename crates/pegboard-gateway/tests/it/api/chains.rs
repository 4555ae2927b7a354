//! Chains: list, check, run.

use pegboard_gateway::api::ApiScope;
use serde_json::{Value, json};

use super::api_server::{ApiServer, api};

#[tokio::test]
async fn chains_are_listed_and_planned() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (_, chains) = server.get("/chains").await;
    insta::assert_snapshot!(chains, @r#"{"chains":[{"toolbox":"dev","name":"report","description":"Lists and adds.","steps":["notes__list","notes__add"]}]}"#);
    let (status, plan) = server.post("/chains/check", json!({"name": "report"})).await;
    assert_eq!(status, 200);
    insta::assert_snapshot!(plan, @r#"{"name":"report","steps":["notes__list","notes__add"],"problems":[],"warnings":[],"plan":[{"step":0,"tool":"notes__list","exists":true,"inputs":{"topic":"topic"},"output":"found","readOnly":true},{"step":1,"tool":"notes__add","exists":true,"inputs":{"text":"found"},"output":"added"}]}"#);
    for name in ["chain__report", "dev/report", "dev/chain/report"] {
        assert_eq!(server.post("/chains/check", json!({"name": name})).await.1, plan, "{name}");
    }
}

#[tokio::test]
async fn checking_an_inline_chain_starts_idle_servers() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let spec = json!({"steps": [{"tool": "idle__sleepy"}, {"tool": "notes__ad"}]});
    let (_, plan) = server.post("/chains/check", json!({"spec": spec})).await;
    insta::assert_snapshot!(plan["problems"], @r#"["Step 1: tool 'notes__ad' not found in registry."]"#);
    insta::assert_snapshot!(plan["plan"][1]["error"], @r#"{"code":"unknown_tool","message":"Unknown tool: notes__ad","hint":"did you mean one of: notes__add, notes__ask, notes__fail?"}"#);
}

#[tokio::test]
async fn an_invalid_chain_is_rejected_before_it_runs() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let run = async |spec: Value, input: Value| {
        let (status, problem) = server.post("/chains/run", json!({"spec": spec, "input": input})).await;
        format!("{status} {}", problem["error"])
    };
    let steps = json!([{"tool": "notes__list"}, {"tool": "notes__ad"}]);
    insta::assert_snapshot!(run(json!({"steps": steps}), json!({})).await, @r#"404 {"code":"unknown_tool","message":"Unknown tool: notes__ad","hint":"did you mean one of: notes__add, notes__ask, notes__fail?","path":"$.steps[1].tool","violations":["Step 1: Unknown tool: notes__ad. Did you mean one of: notes__add, notes__ask, notes__fail?"]}"#);
    let spec = json!({"input_schema": {"type": "object", "required": ["topic"]}, "steps": [{"tool": "notes__list"}]});
    insta::assert_snapshot!(run(spec, json!({"topc": "rust"})).await, @r#"422 {"code":"invalid_parameters","message":"Invalid arguments: $.topic: required field missing","path":"$.topic","violations":["$.topic: required field missing"]}"#);
    // Nothing ran, so there is no trace.
    assert_eq!(server.get("/traces").await.1, json!({"traces": []}));
}

#[tokio::test]
async fn an_invalid_spec_reports_the_reason() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let check = async |body: Value| {
        let (status, problem) = server.post("/chains/check", body).await;
        format!("{status} {}", problem["error"])
    };
    insta::assert_snapshot!(check(json!({"name": "reprot"})).await, @r#"404 {"code":"not_found","message":"unknown chain 'reprot'","hint":"did you mean report?"}"#);
    insta::assert_snapshot!(check(json!({})).await, @r#"400 {"code":"bad_request","message":"give the name of a chain, or its spec"}"#);
    insta::assert_snapshot!(check(json!({"name": "report", "spec": {"steps": []}})).await, @r#"400 {"code":"bad_request","message":"give either name or spec, not both"}"#);
    insta::assert_snapshot!(check(json!({"spec": {"stepz": []}})).await, @r#"400 {"code":"bad_request","message":"invalid chain: unknown field `stepz`, expected one of `chain`, `name`, `description`, `input_schema`, `output`, `semantics`, `steps` at line 1 column 8","path":"$.spec"}"#);
    let many: Vec<Value> = (0..101).map(|_| json!({"tool": "x"})).collect();
    insta::assert_snapshot!(check(json!({"spec": {"steps": many}})).await, @r#"400 {"code":"bad_request","message":"an inline chain can have at most 100 steps","path":"$.spec.steps"}"#);
}

#[tokio::test]
async fn a_chain_returns_all_step_results() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, mut answer) =
        server.post("/chains/run", json!({"name": "report", "input": {"topic": "rust"}})).await;
    assert_eq!(status, 200);
    let result = &mut answer["result"];
    assert!(result["duration_ms"].take().is_f64());
    for step in result["step_results"].as_array_mut().unwrap() {
        assert!(step["duration_ms"].take().is_f64(), "{step}");
    }
    insta::assert_snapshot!(result, @r#"{"success":true,"context":{"topic":"rust","found":"notes/list {\"topic\":\"rust\"}","added":"added {\"text\":\"notes/list {\\\"topic\\\":\\\"rust\\\"}\"}"},"step_results":[{"status":"success","data":"notes/list {\"topic\":\"rust\"}","message":"Tool 'notes__list' executed successfully.","errors":[],"metadata":{},"duration_ms":null,"tool":"notes__list"},{"status":"success","data":"added {\"text\":\"notes/list {\\\"topic\\\":\\\"rust\\\"}\"}","message":"Tool 'notes__add' executed successfully.","errors":[],"metadata":{},"duration_ms":null,"tool":"notes__add"}],"errors":[],"duration_ms":null}"#);
    assert_eq!((&answer["isError"], answer["traceId"].as_str().unwrap().len()), (&json!(false), 32));
    let trace = answer["traceId"].as_str().unwrap();
    let (_, trace) = server.get(&format!("/traces/{trace}")).await;
    let steps = trace["trace"]["op"]["childSession"]["turns"][0]["ops"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| &step["name"]).collect::<Vec<_>>(), ["notes__list", "notes__add"]);
    assert_eq!(trace["trace"]["accounting"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_chain_stops_at_the_first_failure_unless_keep_going_is_set() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let spec = json!({"steps": [{"tool": "notes__fail"}, {"tool": "notes__list"}]});
    for (keep_going, n_steps) in [(false, 1), (true, 2)] {
        let body = json!({"spec": spec, "keepGoing": keep_going});
        let (status, answer) = server.post("/chains/run", body.clone()).await;
        assert_eq!(
            (status, &answer["isError"], &answer["result"]["success"]),
            (200, &json!(true), &json!(false))
        );
        assert_eq!(answer["result"]["step_results"].as_array().unwrap().len(), n_steps);
        let mut stream = server.stream("/chains/run", body).await;
        stream.expect("started").await;
        assert_eq!(stream.expect("result").await["result"]["errors"], answer["result"]["errors"]);
    }
}
