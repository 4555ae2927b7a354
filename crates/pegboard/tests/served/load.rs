//! Overload: many sessions, few file descriptors, full queues.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use pegboard::wire::RawJson;
use pegboard::wire::client::{Era, RequestOptions};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::guards::INITIALIZE;
use crate::harness::{
    CLIENT_KINDS, ConnectedClient, Endpoint, TestEnvironment, call, listed, text, use_tool,
};

const N_SESSIONS: usize = 1000;

fn resident_kib(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// CPU time of a process in ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

struct Crowd {
    http: reqwest::Client,
    url: String,
}

impl Crowd {
    fn request(&self, method: reqwest::Method, session: Option<&str>) -> reqwest::RequestBuilder {
        let request = self.http.request(method, &self.url);
        let request = request.header("content-type", "application/json").header("accept", "application/json");
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
    }

    /// Opens a session and lists its tools.
    async fn join(&self) -> String {
        let answer = self.request(reqwest::Method::POST, None).body(INITIALIZE).send().await.unwrap();
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        answer.bytes().await.unwrap();
        let list = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
        let answer = self.request(reqwest::Method::POST, Some(&session)).body(list).send().await.unwrap();
        assert!(answer.text().await.unwrap().contains("open_toolbox"));
        session
    }

    async fn leave(&self, session: &str) {
        let answer = self.request(reqwest::Method::DELETE, Some(session)).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    }
}

#[tokio::test]
async fn a_thousand_sessions_use_little_memory_and_are_released() {
    let environment = TestEnvironment::new();
    let servers = json!({"s": environment.server("s", &["x"])});
    let configuration = json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
    let file = environment.write("workbench-config.json", &configuration.to_string());
    let mut command = environment.serving(&file);
    command.args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    let pid = endpoint.child.id().unwrap();
    let crowd = Crowd { http: reqwest::Client::new(), url: endpoint.url(None) };
    // Exclude one-time costs.
    crowd.leave(&crowd.join().await).await;
    let before = resident_kib(pid);
    let mut peaks = Vec::new();
    for _ in 0..2 {
        let sessions: Vec<String> =
            stream::iter(0..N_SESSIONS).map(|_| crowd.join()).buffer_unordered(8).collect().await;
        peaks.push(resident_kib(pid).saturating_sub(before));
        stream::iter(&sessions).for_each_concurrent(8, |session| crowd.leave(session)).await;
        let gone = crowd.request(reqwest::Method::POST, Some(&sessions[0])).body(INITIALIZE).send().await;
        assert_eq!(gone.unwrap().status(), 404);
    }
    assert!(peaks[0] < 50 * 1024, "{} KiB for {N_SESSIONS} sessions", peaks[0]);
    // New sessions reuse the memory of closed ones.
    assert!(peaks[1] < peaks[0] + 8 * 1024, "{peaks:?} KiB");
}

#[tokio::test]
async fn without_file_descriptors_new_clients_wait() {
    let environment = TestEnvironment::new();
    let servers = json!({"s": environment.server("s", &["x"])});
    let configuration = json!({"toolboxes": {"t": {"description": "T", "mcpServers": servers}}});
    let file = environment.write("workbench-config.json", &configuration.to_string());
    let mut command = environment.command("sh");
    command.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\"", crate::harness::PROGRAM, "serve"]);
    command.arg(&file).args(["--http", "127.0.0.1:0"]);
    let endpoint = Endpoint::start(command).await;
    let pid = endpoint.child.id().unwrap();
    let (inside, _) = endpoint.client(Some("flat"), Era::Session).await;
    listed(&inside).await;
    assert_eq!(text(&call(&inside, "s__x", json!({})).await), "s/x {}");

    let mut crowd = Vec::new();
    for _ in 0..100 {
        crowd.push(TcpStream::connect(&endpoint.address).await.unwrap());
    }
    assert_eq!(text(&call(&inside, "s__x", json!({"n": 1})).await), r#"s/x {"n":1}"#);
    let before = ticks(pid);
    // Measure CPU time over an interval to detect busy loops.
    time::sleep(Duration::from_secs(2)).await;
    let used = ticks(pid) - before;
    assert!(used < 20, "{used} hundredths of a second in two seconds of waiting");
    assert_eq!(text(&call(&inside, "s__x", json!({"n": 2})).await), r#"s/x {"n":2}"#);

    // Accepting has failed many times since.
    let lines = endpoint.new_lines().await;
    let reported: Vec<_> = lines.iter().filter(|line| line.contains("open files")).collect();
    assert_eq!(reported.len(), 1, "{lines:?}");
    let expected = "New connections wait: too many open files: raise the limit of this process, \
                    for example with `ulimit -n 65536`.";
    assert!(reported[0].contains(expected), "{reported:?}");

    drop(crowd);
    let (late, _) = endpoint.client(Some("flat"), Era::Stateless).await;
    assert_eq!(text(&call(&late, "s__x", json!({"n": 3})).await), r#"s/x {"n":3}"#);
}

#[tokio::test]
async fn calls_beyond_the_queue_limit_are_rejected_immediately() {
    for kind in CLIENT_KINDS {
        let environment = TestEnvironment::new();
        let mut busy = environment.server("s", &["hang", "x"]);
        busy["queue"] = json!("narrow");
        let configuration = json!({
            "pegboard": 1,
            "queues": {"narrow": {"maxConcurrency": 1, "maxWaiting": 1}},
            "toolboxes": {"t": {"description": "T", "mcpServers": {"s": busy, "free": environment.server("free", &["x"])}}},
        });
        let file = environment.write("pegboard.json", &configuration.to_string());
        let connected = ConnectedClient::connect(environment, &file, Some("flat"), kind).await;
        let params = || Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
        let request = || connected.client.request("tools/call", params(), RequestOptions::default());
        let running = AbortOnDropHandle::new(tokio::spawn(request().await.unwrap().response()));
        connected.environment.wait_for_event("s hangs").await;
        // Two calls for a queue with one waiting slot: one is rejected.
        let (mut one, mut other) = (request().await.unwrap(), request().await.unwrap());
        let refused = tokio::select! {
            happening = one.next_event() => happening,
            happening = other.next_event() => happening,
        };
        let pegboard::wire::ResponseEvent::End(Ok(refused)) = refused else { panic!("{refused:?}") };
        insta::allow_duplicates! {
            insta::assert_snapshot!(text(&refused.to_value()), @r#"isError: Queue 'narrow' is full: 1 calls are waiting; try again later"#);
        }
        let refused = use_tool(&connected.client, ["t", "s", "x"], json!({})).await;
        assert_eq!(refused["structuredContent"]["error"]["executed"], false, "{refused}");
        // Other servers are not affected.
        assert_eq!(text(&call(&connected.client, "free__x", json!({})).await), "free/x {}");
        drop(running);
    }
}
