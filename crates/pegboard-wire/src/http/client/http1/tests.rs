//! Tests of the framing of responses, whole and in pieces.

use http::StatusCode;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// A response as it was read: its status, its body, and `true` if the connection can be reused.
type ReadResponse = (u16, Vec<u8>, bool);

/// Reads a response that arrives in these pieces, after which the connection is closed.
fn read<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> io::Result<ReadResponse> {
    let (mut input, mut head, mut body) = (BytesMut::new(), None::<ResponseHead>, Vec::new());
    let mut n_interim = 0;
    for piece in pieces {
        input.extend_from_slice(piece);
        if head.is_none() {
            head = ResponseHead::take(&mut input, &mut n_interim)?;
        }
        if let Some(head) = &mut head {
            while let Some(part) = head.body.next_part(&mut input)? {
                body.extend_from_slice(&part);
            }
        }
    }
    let mut head = head.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let is_reusable = head.body.is_finished() && !head.is_last && input.is_empty();
    if !head.body.is_finished() {
        head.body.end_of_input()?;
    }
    Ok((head.status.as_u16(), body, is_reusable))
}

#[test]
fn a_body_ends_where_its_head_says() {
    let check = |response: &str, expected: ReadResponse| {
        assert_eq!(read([response.as_bytes()]).unwrap(), expected, "{response}");
        assert_eq!(read(response.as_bytes().chunks(1)).unwrap(), expected, "in bytes: {response}");
    };
    let ok = |body: &str, is_reusable| (200, body.as_bytes().to_vec(), is_reusable);
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab", ok("ab", true));
    check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\ncontent-length: 2\r\n\r\nab", ok("ab", true));
    check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ok("", true));
    check("HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 2\r\n\r\nab", ok("ab", false));
    check("HTTP/1.1 200 OK\r\nconnection: foo, close\r\ncontent-length: 2\r\n\r\nab", ok("ab", false));
    check("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nab", ok("ab", false));
    check("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nab", ok("ab", true));
    // Bytes behind the body belong to no request.
    check("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabHTTP/1.1 200 OK\r\n", ok("ab", false));
    check("HTTP/1.1 200 OK\r\n\r\nab", ok("ab", false));
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n";
    check(&format!("{chunked}2\r\nab\r\n1;name=\"value\"\r\nc\r\n0\r\n\r\n"), ok("abc", true));
    check(&format!("{chunked}00A \r\n0123456789\r\n0\r\ntrailer: value\r\n\r\n"), ok("0123456789", true));
    check(&format!("{chunked}0\r\n\r\n"), ok("", true));
    // The chunks count, and the connection is not used again.
    let both = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
    check(&format!("{both}2\r\nab\r\n0\r\n\r\n"), ok("ab", false));
    check("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", (204, Vec::new(), true));
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n";
    check(&format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab"), ok("ab", true));
}

#[test]
fn a_response_that_is_ambiguous_or_cut_off_is_an_error() {
    let check = |response: &str| {
        assert!(read([response.as_bytes()]).is_err(), "{response}");
        assert!(read(response.as_bytes().chunks(1)).is_err(), "in bytes: {response}");
    };
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n";
    for response in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: \r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        // Folded, and with a space before the colon.
        "HTTP/1.1 200 OK\r\na: b\r\n c\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\r\nab",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/2 200 OK\r\n\r\n",
        "SSH-2.0-server\r\n",
    ] {
        check(response);
    }
    for body in [
        "transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "\r\n2\r\nab",
        "\r\n2\r\nabc\r\n0\r\n\r\n",
        "\r\n2\nab\r\n0\r\n\r\n",
        "\r\n-2\r\nab\r\n0\r\n\r\n",
        "\r\n0x2\r\nab\r\n0\r\n\r\n",
        "\r\n\r\nab\r\n0\r\n\r\n",
        "\r\n2 3\r\nab\r\n0\r\n\r\n",
        "\r\nfffffffffffffffff\r\nab\r\n0\r\n\r\n",
        "\r\n2\r\nab\r\n0\r\n",
    ] {
        check(&format!("{chunked}{body}"));
    }
    check(&format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(70_000)));
    check(&format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101)));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    check(&format!("{}HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", interim.repeat(17)));
    check(&format!("{chunked}\r\n2;{}\r\nab\r\n0\r\n\r\n", "a".repeat(5_000)));
    check(&format!("{chunked}\r\n0\r\n{}\r\n", format!("a: {}\r\n", "b".repeat(1_000)).repeat(20)));
}

#[test]
fn events_are_delivered_as_they_arrive_even_with_a_length() {
    let check = |content_type: &str, expected: Option<&[u8]>| {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: 9\r\n\r\ndata");
        let mut input = BytesMut::from(head.as_bytes());
        let mut head = ResponseHead::take(&mut input, &mut 0).unwrap().unwrap();
        assert_eq!(head.body.next_part(&mut input).unwrap().as_deref(), expected, "{content_type}");
    };
    check("Text/Event-Stream; charset=utf-8", Some(b"data"));
    check("application/json", None);
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_same_response(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..6),
        is_chunked: bool,
        cuts in prop::collection::vec(1..20_usize, 1..40),
    ) {
        let body = chunks.concat();
        let mut response = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n".to_vec();
        if is_chunked {
            response.extend(b"transfer-encoding: chunked\r\n\r\n");
            for chunk in &chunks {
                response.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                response.extend(chunk);
                response.extend(b"\r\n");
            }
            response.extend(b"0\r\n\r\n");
        } else {
            response.extend(format!("content-length: {}\r\n\r\n", body.len()).into_bytes());
            response.extend(&body);
        }
        let (mut rest, mut pieces) = (&*response, Vec::new());
        for cut in cuts.iter().cycle() {
            let (piece, others) = rest.split_at(rest.len().min(*cut));
            pieces.push(piece);
            rest = others;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(read(pieces).unwrap(), (200, body, true));
    }

    #[test]
    fn no_input_causes_a_panic(
        head in prop::sample::select(vec![
            "", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n",
        ]),
        garbage in "([0-9a-fA-F;:\r\n ]|content-length|transfer-encoding|chunked|HTTP/1.1 |\r\n){0,60}",
        bytes in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let _ = read([head.as_bytes(), garbage.as_bytes(), &bytes]);
    }
}

/// Connects to a server that reads a request of `n_request` bytes, then sends these bytes, and reads no more.
async fn connect(n_request: usize, response: &'static [u8]) -> Http1Connection {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut vec![0; n_request]).await.unwrap();
        socket.write_all(response).await.unwrap();
        // The task ends with the runtime of the test.
        std::future::pending::<()>().await;
    });
    Http1Connection::new(TcpStream::connect(address).await.unwrap())
}

fn request(body: Bytes) -> RequestBytes {
    RequestBytes::new(&Method::POST, "/mcp", &RequestHeaders::from(http::HeaderMap::new()), body)
}

#[tokio::test]
async fn bodies_of_requests_and_responses_of_any_size_arrive() {
    for n_bytes in [1, 4 << 10, 5 << 10, 3 << 20] {
        let request = request(Bytes::from(vec![b'x'; n_bytes]));
        let expected = format!("POST /mcp HTTP/1.1\r\ncontent-length: {n_bytes}\r\n\r\n").len() + n_bytes;
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {n_bytes}\r\n\r\n{}", "y".repeat(n_bytes));
        let mut connection = connect(expected, response.leak().as_bytes()).await;
        let mut head = connection.exchange(&request).await.unwrap();
        assert_eq!((head.status, head.is_last), (StatusCode::OK, false));
        let whole = poll_fn(|context| connection.poll_body(&mut head.body, context)).await.unwrap();
        let whole = whole.unwrap();
        assert_eq!(whole, "y".repeat(n_bytes));
        assert!(head.body.is_finished() && connection.is_reusable());
        // An idle connection does not keep the memory of a long body.
        assert!(n_bytes <= READ_BYTES || whole.is_unique());
    }
}

#[tokio::test]
async fn a_server_may_reject_a_request_before_it_has_read_it() {
    let rejection = b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
    let mut connection = connect(20, rejection).await;
    // More than the buffers of the sockets hold.
    let head = connection.exchange(&request(Bytes::from(vec![b'x'; 32 << 20]))).await.unwrap();
    assert_eq!((head.status, head.is_last), (StatusCode::PAYLOAD_TOO_LARGE, true));
}
