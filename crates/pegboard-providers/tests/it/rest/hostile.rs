//! Malicious services and arguments.

use std::net::IpAddr;

use futures_util::future::{FutureExt, ready};
use http::Method;
use pegboard_core::error::{CallError, Executed};
use pegboard_http::{
    HostResolver, NetworkAccess, ResponseLimits, WebClient, WebError, WebPolicy, WebRequest,
};
use pegboard_testkit::recorder::{CannedResponse, Recorder};
use serde_json::{Value, json};
use tokio::time;

use crate::rest::harness::{RestHarness, parameters};

/// Calls a tool with these settings and returns the error.
async fn call_error(settings: Value, reply: CannedResponse) -> String {
    let harness = RestHarness::new("/", settings, [reply]).await;
    let error = harness.call(json!({})).await.unwrap_err();
    error.replace(&harness.service.url(""), "http://service")
}

#[tokio::test]
async fn a_cross_origin_redirect_is_refused_and_named() {
    let other = Recorder::start([CannedResponse::json("{}")]).await;
    for location in [
        other.url("/steal"),
        "//evil.example/".into(),
        "https://127.0.0.1/".into(),
        "file:///etc/passwd".into(),
    ] {
        let settings = json!({"headers": {"Authorization": "hush"}});
        let error = call_error(settings, CannedResponse::redirect(307, &location)).await;
        assert!(error.starts_with("http://service redirects to "), "{error}");
        assert!(!error.contains("/steal") && !error.contains("hush"), "{error}");
    }
    assert_eq!(other.recorded(), []);
    insta::assert_snapshot!(
        call_error(json!({}), CannedResponse::redirect(302, "https://evil.example/x?y=z")).await,
        @"http://service redirects to https://evil.example: a redirect to another origin is not followed, since it would receive the credentials of the first. If this is intended, configure https://evil.example"
    );
}

#[tokio::test]
async fn redirects_are_limited() {
    let round = std::iter::repeat_with(|| CannedResponse::redirect(302, "/")).take(10);
    let harness = RestHarness::new("/", json!({}), round).await;
    assert_eq!(harness.call(json!({})).await.unwrap_err(), "the service redirects more than 5 times");
    assert_eq!(harness.service.recorded().len(), 6);
    let nowhere = call_error(json!({}), CannedResponse::redirect(302, "http://[")).await;
    assert_eq!(nowhere, "the service redirects to an invalid URL");
}

#[tokio::test]
async fn a_line_break_in_a_header_is_never_sent() {
    for value in ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\u{7f}"] {
        let settings =
            json!({"headers": {"X-Note": "${parameters.a}"}, "parametersSchema": parameters(&["a"])});
        let harness = RestHarness::new("/", settings, [CannedResponse::json("{}")]).await;
        let error = harness.call(json!({"a": value})).await.unwrap_err();
        assert_eq!(
            error,
            "Invalid arguments: $.a: cannot send header 'X-Note': its value contains a line break or another \
             control character"
        );
        assert_eq!(harness.service.recorded(), []);
    }
}

#[test]
fn connection_headers_cannot_be_set() {
    let mut request = WebRequest::new(Method::GET, "http://127.0.0.1/".parse().unwrap());
    for name in ["Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "a b", "a:", ""] {
        assert!(matches!(request.set_header(name, "x"), Err(WebError::InvalidHeader { .. })), "{name}");
    }
    assert!(request.set_header("X-Token", "hush").is_ok());
    assert!(!format!("{request:?}").contains("hush"));
}

#[tokio::test]
async fn a_response_is_read_up_to_its_limit() {
    let head = "HTTP/1.1 200 -\r\ncontent-type: text/plain\r\n";
    let too_large = "the response exceeds 1000 bytes: request less, or raise maxBytes";
    let cases = [
        CannedResponse::new(200, "text/plain", "x".repeat(1001)),
        CannedResponse::held(format!("{head}content-length: 99999999999\r\n\r\n")),
        CannedResponse::endless(format!("{head}\r\n"), "x".repeat(1000)),
        CannedResponse::endless(
            format!("{head}transfer-encoding: chunked\r\n\r\n"),
            "10\r\n0123456789abcdef\r\n",
        ),
        CannedResponse::with_headers(200, &[("content-encoding", "gzip")], bomb(64 * 1024 * 1024)),
    ];
    for reply in cases {
        assert_eq!(call_error(json!({"maxBytes": 1000}), reply).await, too_large);
    }
    let harness = RestHarness::new(
        "/",
        json!({"maxBytes": 1000}),
        [CannedResponse::new(200, "text/plain", "x".repeat(1000))],
    )
    .await;
    assert!(harness.call(json!({})).await.is_ok());
}

/// Compresses this many zeros as small as possible.
fn bomb(n_bytes: usize) -> Vec<u8> {
    let mut packed = vec![31, 139, 8, 0, 0, 0, 0, 0, 2, 255];
    // Final block with fixed Huffman codes: one zero, then repeated copies of 258 bytes at distance 1.
    let mut bits: Vec<bool> = vec![true, true, false];
    bits.extend([false, false, true, true, false, false, false, false]);
    for _ in 0..n_bytes / 258 {
        bits.extend([true, true, false, false, false, true, false, true]);
        bits.extend([false; 5]);
    }
    packed.extend(
        bits.chunks(8).map(|eight| eight.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))),
    );
    packed
}

#[tokio::test]
async fn unreadable_responses_are_refused() {
    let packed =
        call_error(json!({}), CannedResponse::with_headers(200, &[("content-encoding", "br")], "???")).await;
    assert_eq!(packed, "unsupported content encoding 'br'");
    let broken = [
        CannedResponse::raw("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nshort"),
        CannedResponse::raw("not HTTP at all\r\n\r\n"),
        CannedResponse::raw(""),
        CannedResponse::endless("HTTP/1.1 200 -\r\n", "x-more: and more\r\n"),
        CannedResponse::raw(format!("HTTP/1.1 200 -\r\nx-long: {}\r\n\r\n", "x".repeat(1024 * 1024))),
        CannedResponse::with_headers(200, &[("content-encoding", "gzip")], "no gzip"),
    ];
    for reply in broken {
        let error = call_error(json!({}), reply).await;
        assert!(error.starts_with("connection to http://service lost: "), "{error}");
    }
}

#[tokio::test]
async fn a_silent_service_times_out() {
    let cases = [
        (CannedResponse::held(""), "no response within 2s"),
        (CannedResponse::held("HTTP/1.1 200 -\r\nx-slow: "), "no response within 2s"),
        (
            CannedResponse::held("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nhalf"),
            "no further data within 2s",
        ),
    ];
    for (reply, expected) in cases {
        let harness = RestHarness::new("/", json!({"timeout": "2s"}), [reply]).await;
        let call = harness.call(json!({}));
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("nothing has ended yet"),
            () = harness.service.wait_for_requests(1) => {}
        }
        time::pause();
        assert_eq!(call.await.unwrap_err(), expected);
        time::resume();
    }
}

#[tokio::test]
async fn dropping_a_call_cancels_its_request() {
    for reply in
        [CannedResponse::held(""), CannedResponse::held("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nhalf")]
    {
        let harness = RestHarness::new("/", json!({}), [reply]).await;
        tokio::select! {
            _ = harness.call(json!({})) => panic!("nothing has ended yet"),
            () = harness.service.wait_for_requests(1) => {}
        }
        harness.service.wait_for_disconnect().await;
    }
}

/// Creates a client with a host that resolves to this address.
fn client_resolving_to(base: &str, network: NetworkAccess, leads_to: &str) -> WebClient {
    let address: IpAddr = leads_to.parse().unwrap();
    let resolver = HostResolver::new(move |_| ready(Ok(vec![address])).boxed());
    WebClient::new(WebPolicy { network, resolver, ..WebPolicy::new(base.parse().unwrap()) }).unwrap()
}

#[tokio::test]
async fn a_public_name_that_resolves_to_loopback_is_refused() {
    let service = Recorder::start([CannedResponse::json("{}")]).await;
    let base = format!("http://api.example.org:{}/", service.port());
    let request = || WebRequest::new(Method::GET, base.parse().unwrap());
    let refused = client_resolving_to(&base, NetworkAccess::ByName, "127.0.0.1")
        .send(request(), ResponseLimits::default())
        .await;
    let error = refused.map(drop).unwrap_err();
    assert!(matches!(error, WebError::AddressNotAllowed { .. }), "{error}");
    assert_eq!(CallError::from(error).executed(), Executed::No);
    assert_eq!(service.recorded(), []);

    let allowed = client_resolving_to(&base, NetworkAccess::Private, "127.0.0.1")
        .send(request(), ResponseLimits::default())
        .await;
    assert!(allowed.is_ok());
    assert_eq!(service.recorded()[0].header("host"), Some(&*format!("api.example.org:{}", service.port())));
}

#[tokio::test]
async fn requests_to_other_origins_are_refused() {
    let web = client_resolving_to("http://api.example.org/", NetworkAccess::ByName, "93.184.215.14");
    for elsewhere in ["http://evil.example/", "https://api.example.org/", "http://api.example.org:8080/"] {
        let sent = web
            .send(WebRequest::new(Method::GET, elsewhere.parse().unwrap()), ResponseLimits::default())
            .await;
        assert!(matches!(sent, Err(WebError::ForeignOrigin { .. })), "{elsewhere}");
    }
}

#[tokio::test]
async fn a_connection_error_counts_as_not_executed() {
    let gone = Recorder::start([]).await.url("/");
    let tool = crate::rest::harness::tool(&gone, &json!({}));
    let call = pegboard_core::call::ValidCall::admit(
        tool,
        json!({}).into(),
        pegboard_core::call::CallContext::default(),
        pegboard_core::call::SchemaChecks::All,
    );
    let error = call.unwrap().run().await.unwrap_err();
    assert_eq!(error.executed(), Executed::No);
    assert!(error.text().contains("cannot connect to "), "{error}");
}
