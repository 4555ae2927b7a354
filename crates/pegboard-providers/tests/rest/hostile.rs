//! Services that mean harm, and callers that do.

use std::net::IpAddr;

use futures_util::future::{FutureExt, ready};
use http::Method;
use pegboard_core::error::{CallError, Executed};
use pegboard_providers::web::{Limits, Lookup, Network, Outgoing, Policy, Web, WebError};
use pegboard_testkit::recorder::{Recorder, Reply};
use serde_json::{Value, json};
use tokio::time;

use crate::stage::{Stage, parameters};

/// Why there is no answer to a call of a tool with these settings.
async fn refusal(settings: Value, reply: Reply) -> String {
    let stage = Stage::new("/", settings, [reply]).await;
    let error = stage.call(json!({})).await.unwrap_err();
    error.replace(&stage.service.url(""), "http://service")
}

#[tokio::test]
async fn a_redirect_to_somebody_else_is_refused_and_named() {
    let other = Recorder::start([Reply::json("{}")]).await;
    for location in [
        other.url("/steal"),
        "//evil.example/".into(),
        "https://127.0.0.1/".into(),
        "file:///etc/passwd".into(),
    ] {
        let settings = json!({"headers": {"Authorization": "hush"}});
        let error = refusal(settings, Reply::redirect(307, &location)).await;
        assert!(error.starts_with("http://service redirects to "), "{error}");
        assert!(!error.contains("/steal") && !error.contains("hush"), "{error}");
    }
    assert_eq!(other.recorded(), []);
    insta::assert_snapshot!(
        refusal(json!({}), Reply::redirect(302, "https://evil.example/x?y=z")).await,
        @"http://service redirects to https://evil.example. A redirect to another origin is not followed, since it would be given what is meant for the first. If that is right, configure https://evil.example"
    );
}

#[tokio::test]
async fn redirects_come_to_an_end() {
    let round = std::iter::repeat_with(|| Reply::redirect(302, "/")).take(10);
    let stage = Stage::new("/", json!({}), round).await;
    assert_eq!(stage.call(json!({})).await.unwrap_err(), "the service redirects more than 5 times");
    assert_eq!(stage.service.recorded().len(), 6);
    let nowhere = refusal(json!({}), Reply::redirect(302, "http://[")).await;
    assert_eq!(nowhere, "the service redirects to something that is no address");
}

#[tokio::test]
async fn a_line_break_in_a_header_is_never_sent() {
    for value in ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\u{7f}"] {
        let settings =
            json!({"headers": {"X-Note": "${parameters.a}"}, "parametersSchema": parameters(&["a"])});
        let stage = Stage::new("/", settings, [Reply::json("{}")]).await;
        let error = stage.call(json!({"a": value})).await.unwrap_err();
        assert_eq!(
            error,
            "Invalid arguments: $.a: the header 'X-Note' cannot be sent: its value has a line break or another \
             control character"
        );
        assert_eq!(stage.service.recorded(), []);
    }
}

#[test]
fn headers_of_the_connection_cannot_be_set() {
    let mut outgoing = Outgoing::new(Method::GET, "http://127.0.0.1/".parse().unwrap());
    for name in ["Host", "content-length", "Transfer-Encoding", "Connection", "Upgrade", "a b", "a:", ""] {
        assert!(matches!(outgoing.set_header(name, "x"), Err(WebError::BadHeader { .. })), "{name}");
    }
    assert!(outgoing.set_header("X-Token", "hush").is_ok());
    assert!(!format!("{outgoing:?}").contains("hush"));
}

#[tokio::test]
async fn an_answer_is_read_up_to_its_cap() {
    let head = "HTTP/1.1 200 -\r\ncontent-type: text/plain\r\n";
    let too_large = "the answer has more than 1000 bytes. Ask for less, or raise maxBytes";
    let cases = [
        Reply::new(200, "text/plain", "x".repeat(1001)),
        Reply::held(format!("{head}content-length: 99999999999\r\n\r\n")),
        Reply::endless(format!("{head}\r\n"), "x".repeat(1000)),
        Reply::endless(format!("{head}transfer-encoding: chunked\r\n\r\n"), "10\r\n0123456789abcdef\r\n"),
        Reply::with_headers(200, &[("content-encoding", "gzip")], bomb(64 * 1024 * 1024)),
    ];
    for reply in cases {
        assert_eq!(refusal(json!({"maxBytes": 1000}), reply).await, too_large);
    }
    let stage =
        Stage::new("/", json!({"maxBytes": 1000}), [Reply::new(200, "text/plain", "x".repeat(1000))]).await;
    assert!(stage.call(json!({})).await.is_ok());
}

/// So many zeros, packed as small as they can be.
fn bomb(n_bytes: usize) -> Vec<u8> {
    let mut packed = vec![31, 139, 8, 0, 0, 0, 0, 0, 2, 255];
    // The last block, with the usual codes: a zero, and then again and again "258 bytes, from one byte before".
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
async fn an_answer_that_nobody_can_read_is_refused() {
    let packed = refusal(json!({}), Reply::with_headers(200, &[("content-encoding", "br")], "???")).await;
    assert_eq!(packed, "the answer is packed as 'br', which was not asked for and cannot be read");
    let broken = [
        Reply::raw("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nshort"),
        Reply::raw("not HTTP at all\r\n\r\n"),
        Reply::raw(""),
        Reply::endless("HTTP/1.1 200 -\r\n", "x-more: and more\r\n"),
        Reply::raw(format!("HTTP/1.1 200 -\r\nx-long: {}\r\n\r\n", "x".repeat(1024 * 1024))),
        Reply::with_headers(200, &[("content-encoding", "gzip")], "no gzip"),
    ];
    for reply in broken {
        let error = refusal(json!({}), reply).await;
        assert!(error.starts_with("the connection to http://service broke: "), "{error}");
    }
}

#[tokio::test]
async fn a_service_that_says_nothing_is_not_waited_for_for_ever() {
    let cases = [
        (Reply::held(""), "the answer did not begin within 2s"),
        (Reply::held("HTTP/1.1 200 -\r\nx-slow: "), "the answer did not begin within 2s"),
        (
            Reply::held("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nhalf"),
            "the answer did not go on within 2s",
        ),
    ];
    for (reply, expected) in cases {
        let stage = Stage::new("/", json!({"timeout": "2s"}), [reply]).await;
        let call = stage.call(json!({}));
        tokio::pin!(call);
        tokio::select! {
            _ = &mut call => panic!("nothing has ended yet"),
            () = stage.service.asked(1) => {}
        }
        time::pause();
        assert_eq!(call.await.unwrap_err(), expected);
        time::resume();
    }
}

#[tokio::test]
async fn giving_a_call_up_gives_its_request_up() {
    for reply in [Reply::held(""), Reply::held("HTTP/1.1 200 -\r\ncontent-length: 10\r\n\r\nhalf")] {
        let stage = Stage::new("/", json!({}), [reply]).await;
        tokio::select! {
            _ = stage.call(json!({})) => panic!("nothing has ended yet"),
            () = stage.service.asked(1) => {}
        }
        stage.service.left().await;
    }
}

/// A way to a service whose name leads where it should not.
fn misled(base: &str, network: Network, leads_to: &str) -> Web {
    let address: IpAddr = leads_to.parse().unwrap();
    let lookup = Lookup::new(move |_| ready(Ok(vec![address])).boxed());
    Web::new(Policy { network, lookup, ..Policy::new(base.parse().unwrap()) }).unwrap()
}

#[tokio::test]
async fn a_name_that_leads_home_is_refused_before_anything_is_sent() {
    let service = Recorder::start([Reply::json("{}")]).await;
    let base = format!("http://api.example.org:{}/", service.port());
    let outgoing = || Outgoing::new(Method::GET, base.parse().unwrap());
    let refused = misled(&base, Network::AsNamed, "127.0.0.1").send(outgoing(), Limits::default()).await;
    let error = refused.map(drop).unwrap_err();
    assert!(matches!(error, WebError::Forbidden { .. }), "{error}");
    assert_eq!(CallError::from(error).executed(), Executed::No);
    assert_eq!(service.recorded(), []);

    let allowed = misled(&base, Network::Private, "127.0.0.1").send(outgoing(), Limits::default()).await;
    assert!(allowed.is_ok());
    assert_eq!(service.recorded()[0].header("host"), Some(&*format!("api.example.org:{}", service.port())));
}

#[tokio::test]
async fn a_request_leaves_its_service_by_no_way() {
    let web = misled("http://api.example.org/", Network::AsNamed, "93.184.215.14");
    for elsewhere in ["http://evil.example/", "https://api.example.org/", "http://api.example.org:8080/"] {
        let sent = web.send(Outgoing::new(Method::GET, elsewhere.parse().unwrap()), Limits::default()).await;
        assert!(matches!(sent, Err(WebError::Elsewhere { .. })), "{elsewhere}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_was_not_asked() {
    let gone = Recorder::start([]).await.url("/");
    let tool = crate::stage::tool(&gone, &json!({}));
    let call = pegboard_core::call::ValidCall::admit(
        tool,
        json!({}).into(),
        pegboard_core::call::CallContext::default(),
        pegboard_core::call::Checks::All,
    );
    let error = call.unwrap().run().await.unwrap_err();
    assert_eq!(error.executed(), Executed::No);
    assert!(error.text().contains("cannot be reached: "), "{error}");
}
