//! Remote servers: TLS with a private authority, HTTP/2, proxies, redirects and compression.

use std::path::PathBuf;
use std::slice;

use insta::assert_snapshot;
use pegboard::wire::client::{Era, McpClient, RequestOptions};
use pegboard::wire::{RawJson, ResponseEvent};
use pegboard_testkit::proxy::ForwardProxy;
use pegboard_testkit::recorder::RecordedRequest;
use pegboard_testkit::remote_server;
use pegboard_testkit::tls::{CertificateAuthority, RecordingServer};
use regex::Regex;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::process::Command;
use tokio::time;

use crate::harness::{Endpoint, PROGRAM, TEST_TIMEOUT, TestEnvironment, call, text};

/// Variables of the environment that decide how a server is reached.
const NETWORK_VARIABLES: [&str; 10] = [
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// A name that only a proxy resolves.
const HOST: &str = "mcp.test";

/// Names of the server's certificate.
const NAMES: [&str; 2] = ["localhost", HOST];

/// Name of the authority.
const AUTHORITY: &str = "Private authority";

/// A secret in the headers of a server.
const TOKEN: &str = "token-of-the-server";

/// An authority that no client trusts by default, and its certificate in a file.
struct Network {
    environment: TestEnvironment,
    authority: CertificateAuthority,
    trusted: PathBuf,
}

impl Network {
    fn new() -> Self {
        let (environment, authority) = (TestEnvironment::new(), CertificateAuthority::new(AUTHORITY));
        let trusted = environment.write("ca.pem", &authority.pem());
        Self { environment, authority, trusted }
    }

    /// Starts a server over TLS.
    async fn start_tls(&self, protocols: &[&str]) -> RecordingServer {
        RecordingServer::start_tls(&self.authority, &NAMES, protocols, remote_server::router("/")).await
    }

    /// Returns the variable that names the trusted certificates.
    fn trust(&self) -> (&'static str, String) {
        ("SSL_CERT_FILE", self.trusted.display().to_string())
    }

    /// Returns the variable that names a directory with the certificate of an authority.
    fn folder_of(&self, authority: &CertificateAuthority) -> (&'static str, String) {
        let folder = self.environment.folder().join("certificates");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        ("SSL_CERT_DIR", folder.display().to_string())
    }

    /// Returns a command with a configuration that has one server, and with these variables.
    fn command(&self, url: &str, variables: &[(&str, String)]) -> Command {
        let kind = if url.starts_with("wss") { "websocket" } else { "http" };
        let headers = json!({"x-token": TOKEN});
        let server = json!({"type": kind, "url": url, "headers": headers});
        self.environment.write("pegboard.json", &json!({"mcpServers": {"s": server}}).to_string());
        let mut command = self.environment.command(PROGRAM);
        command.arg("--trust");
        for variable in NETWORK_VARIABLES {
            command.env_remove(variable);
        }
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Calls `echo` of the server at a URL. Returns the output of the program.
    async fn echo(&self, url: &str, variables: &[(&str, String)]) -> String {
        let mut command = self.command(url, variables);
        command.args(["call", "s__echo", "text=hello"]);
        let output = time::timeout(TEST_TIMEOUT, command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        // The hint of a command follows from the reason.
        let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("  help: ")).collect();
        // The part before it says when the attempt was made.
        let attempt = Regex::new(r"MCP server 's' is unavailable \(initialization failed \d+s ago, .*?\): ");
        attempt
            .unwrap()
            .replace(&text, "")
            .replace(&self.environment.folder().display().to_string(), "FOLDER")
    }

    /// Starts a gateway for the server at a URL, and connects a client.
    async fn connect(&self, url: &str) -> (Endpoint, McpClient) {
        let mut command = self.command(url, &[self.trust()]);
        command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat"]);
        let endpoint = Endpoint::start(command).await;
        let (client, _) = endpoint.client(None, Era::Session).await;
        (endpoint, client)
    }
}

/// Replaces the number of a port.
fn without_port(text: &str, port: u16) -> String {
    text.replace(&port.to_string(), "PORT")
}

#[tokio::test]
async fn a_private_authority_is_trusted_through_ssl_cert_file() {
    let network = Network::new();
    for protocols in [&["h2"][..], &["http/1.1"], &["h2", "http/1.1"], &[]] {
        let server = network.start_tls(protocols).await;
        let url = server.url("localhost", "/mcp");
        for trust in [network.trust(), network.folder_of(&network.authority)] {
            assert_eq!(network.echo(&url, &[trust]).await, "hello\n", "{protocols:?}");
        }
        let version = if protocols.first() == Some(&"h2") { "HTTP/2" } else { "HTTP/1.1" };
        let lines: Vec<String> = server.recorded().into_iter().map(|request| request.line).collect();
        assert!(lines.iter().all(|line| line.ends_with(version)) && !lines.is_empty(), "{lines:?}");
    }
    let server = network.start_tls(&["http/1.1"]).await;
    let url = server.url("localhost", "/ws").replace("https", "wss");
    assert_eq!(network.echo(&url, &[network.trust()]).await, "hello\n");
}

#[tokio::test]
async fn an_untrusted_certificate_is_an_error_with_its_fix() {
    let network = Network::new();
    let server = network.start_tls(&["h2", "http/1.1"]).await;
    let (plain, socket) = (server.url("localhost", "/mcp"), server.url("localhost", "/ws"));
    let socket = socket.replace("https", "wss");
    let mut said = String::new();
    // Another authority, and one that only has the same name.
    for name in ["Other authority", AUTHORITY] {
        let file = network.environment.write("other.pem", &CertificateAuthority::new(name).pem());
        for url in [&plain, &socket] {
            said += &network.echo(url, &[("SSL_CERT_FILE", file.display().to_string())]).await;
        }
    }
    // Without the variable. Certificates of the system would do, if it has any.
    for url in [&plain, &socket] {
        said += &network.echo(url, &[network.folder_of(&CertificateAuthority::new("Public"))]).await;
    }
    // Another host.
    said += &network.echo(&server.url("127.0.0.1", "/mcp"), &[network.trust()]).await;
    assert_snapshot!(said, @r#"
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: add the certificate of its authority to SSL_CERT_FILE (FOLDER/other.pem)
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: add the certificate of its authority to SSL_CERT_FILE (FOLDER/other.pem)
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: add the certificate of its authority to SSL_CERT_FILE (FOLDER/other.pem)
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: add the certificate of its authority to SSL_CERT_FILE (FOLDER/other.pem)
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: if a private authority issued it, set SSL_CERT_FILE to a PEM file with the authority's certificate
    error[server_unavailable]: MCP server 's' did not start: the server's certificate is not trusted: if a private authority issued it, set SSL_CERT_FILE to a PEM file with the authority's certificate
    error[server_unavailable]: MCP server 's' did not start: cannot reach the server: invalid peer certificate: certificate not valid for name "127.0.0.1"; certificate is only valid for DnsName("localhost") or DnsName("mcp.test")
    "#);
    assert_eq!((server.n_connections(), server.recorded()), (0, Vec::new()));
}

#[tokio::test]
async fn unusable_trusted_certificates_matter_only_to_tls() {
    let network = Network::new();
    let pem = network.authority.pem();
    let tls = network.start_tls(&["h2"]).await;
    let plain = RecordingServer::start_plain(remote_server::router("/")).await;
    let proxy = ForwardProxy::start(None).await;
    let files =
        [("truncated.pem", &pem[..pem.len() / 2]), ("empty.pem", ""), ("text.pem", "no certificate\n")];
    let mut errors = String::new();
    for (name, text) in files {
        network.environment.write(name, text);
    }
    for name in ["truncated.pem", "empty.pem", "text.pem", "missing.pem", "."] {
        let variable = ("SSL_CERT_FILE", network.environment.folder().join(name).display().to_string());
        let plain_url = plain.url("127.0.0.1", "/mcp");
        assert_eq!(network.echo(&plain_url, slice::from_ref(&variable)).await, "hello\n", "{name}");
        let proxied = ("HTTP_PROXY", format!("http://{}", proxy.address()));
        let proxied = network.echo(&plain.url(HOST, "/mcp"), &[variable.clone(), proxied]).await;
        assert_eq!(proxied, "hello\n", "{name}");
        let url = tls.url("localhost", "/mcp");
        for url in [url.replace("https", "wss"), url] {
            errors += &network.echo(&url, slice::from_ref(&variable)).await;
        }
    }
    assert_snapshot!(errors, @r#"
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/truncated.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/truncated.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/empty.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/empty.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/text.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/text.pem) contains no certificate in PEM format
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/missing.pem) cannot be read: No such file or directory (os error 2)
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/missing.pem) cannot be read: No such file or directory (os error 2)
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/.) cannot be read: Is a directory (os error 21)
    error[server_unavailable]: MCP server 's' did not start: cannot verify the server's certificate: SSL_CERT_FILE (FOLDER/.) cannot be read: Is a directory (os error 21)
    "#);
}

/// Lines of the requests, without repetitions.
fn lines(requests: &[RecordedRequest], port: u16) -> Vec<String> {
    let mut lines: Vec<String> = requests.iter().map(|request| without_port(&request.line, port)).collect();
    lines.dedup();
    lines
}

fn port(url: &str) -> u16 {
    url.rsplit_once(':').unwrap().1.split('/').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_used() {
    let network = Network::new();
    let tls = network.start_tls(&["h2", "http/1.1"]).await;
    let plain = RecordingServer::start_plain(remote_server::router("/")).await;
    let forwarded = "POST http://mcp.test:PORT/mcp HTTP/1.1";
    let tunnelled = "CONNECT mcp.test:PORT HTTP/1.1";
    let cases = [
        (&plain, "HTTP_PROXY", "http", forwarded),
        (&plain, "http_proxy", "http", forwarded),
        (&plain, "ALL_PROXY", "http", forwarded),
        (&plain, "HTTP_PROXY", "https", forwarded),
        (&tls, "HTTPS_PROXY", "http", tunnelled),
        (&tls, "https_proxy", "http", tunnelled),
        (&tls, "all_proxy", "http", tunnelled),
        (&tls, "HTTPS_PROXY", "https", tunnelled),
    ];
    // The user and password below.
    let authorization = Some("Basic dXNlcjpwQHNzIHdvcmQ=");
    for (server, variable, scheme, line) in cases {
        let proxy = match scheme {
            "https" => ForwardProxy::start_tls(&network.authority, authorization).await,
            _ => ForwardProxy::start(authorization).await,
        };
        let proxy_url = format!("{scheme}://user:p%40ss%20word@localhost:{}", proxy.address().port());
        let url = server.url(HOST, "/mcp");
        let said = network.echo(&url, &[network.trust(), (variable, proxy_url)]).await;
        assert_eq!(said, "hello\n", "{variable}");
        assert_eq!(lines(&proxy.recorded(), port(&url)), [line], "{variable}");
        let at_server = server.recorded();
        assert!(
            at_server.iter().all(|request| request.header("proxy-authorization").is_none()),
            "{variable}"
        );
        assert!(at_server.iter().all(|request| request.header("x-token") == Some(TOKEN)), "{variable}");
        if line == tunnelled {
            // The proxy does not see the headers of the server.
            assert!(proxy.recorded().iter().all(|request| request.header("x-token").is_none()), "{variable}");
            assert!(at_server.iter().all(|request| request.line.ends_with("HTTP/2")), "{variable}");
        }
    }
}

#[tokio::test]
async fn no_proxy_bypasses_the_proxy() {
    let network = Network::new();
    let tls = network.start_tls(&["h2"]).await;
    let plain = RecordingServer::start_plain(remote_server::router("/")).await;
    let proxy = ForwardProxy::start(None).await;
    let proxy_url = format!("http://{}", proxy.address());
    for (server, variable) in [(&plain, "HTTP_PROXY"), (&tls, "HTTPS_PROXY")] {
        for (name, hosts) in
            [("NO_PROXY", "localhost"), ("no_proxy", "other.test, localhost"), ("NO_PROXY", "*")]
        {
            let variables = [network.trust(), (variable, proxy_url.clone()), (name, hosts.to_owned())];
            assert_eq!(
                network.echo(&server.url("localhost", "/mcp"), &variables).await,
                "hello\n",
                "{hosts}"
            );
        }
    }
    assert_eq!(proxy.recorded(), []);
}

#[tokio::test]
async fn errors_of_a_proxy_name_it_without_its_credentials() {
    let network = Network::new();
    let tls = network.start_tls(&["h2"]).await;
    let plain = RecordingServer::start_plain(remote_server::router("/")).await;
    let proxy = ForwardProxy::start(Some("Basic other")).await;
    // Bound, so that no other program gets the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = socket.local_addr().unwrap();
    let mut said = String::new();
    for (scheme, address) in [("http", proxy.address()), ("http", closed), ("socks5h", closed)] {
        for (server, variable) in [(&plain, "HTTP_PROXY"), (&tls, "HTTPS_PROXY")] {
            let proxy_url = format!("{scheme}://user:secret@{address}");
            let output =
                network.echo(&server.url(HOST, "/mcp"), &[network.trust(), (variable, proxy_url)]).await;
            assert!(!output.contains("secret") && !output.contains("user:"), "{output}");
            said += &without_port(&output, address.port());
        }
    }
    assert_snapshot!(said, @r#"
    error[server_unavailable]: MCP server 's' did not start: the server answered with HTTP status 407: the proxy requires a user and password in its URL
    error[server_unavailable]: MCP server 's' did not start: cannot reach the server through the proxy http://127.0.0.1:PORT: tunnel error: proxy authorization required
    error[server_unavailable]: MCP server 's' did not start: cannot reach the server through the proxy http://127.0.0.1:PORT: Connection refused (os error 111)
    error[server_unavailable]: MCP server 's' did not start: cannot reach the server through the proxy http://127.0.0.1:PORT: Connection refused (os error 111)
    error[server_unavailable]: MCP server 's' did not start: the proxy socks5h://127.0.0.1:PORT is not supported: use one that speaks HTTP
    error[server_unavailable]: MCP server 's' did not start: the proxy socks5h://127.0.0.1:PORT is not supported: use one that speaks HTTP
    "#);
}

#[tokio::test]
async fn redirects_stay_on_the_origin_and_compressed_answers_are_read() {
    let network = Network::new();
    let elsewhere = RecordingServer::start_plain(remote_server::router("/")).await;
    let away = elsewhere.url("localhost", "/mcp");
    let router = || remote_server::router(&away);
    let plain = RecordingServer::start_plain(router()).await;
    let h1 = RecordingServer::start_tls(&network.authority, &NAMES, &["http/1.1"], router()).await;
    let h2 = RecordingServer::start_tls(&network.authority, &NAMES, &["h2"], router()).await;
    let mut said = String::new();
    for server in [&plain, &h1, &h2] {
        for path in ["/307", "/308", "/gzip"] {
            let url = server.url("localhost", path);
            assert_eq!(network.echo(&url, &[network.trust()]).await, "hello\n", "{url}");
        }
        let recorded = server.recorded();
        assert!(recorded.iter().all(|request| request.header("x-token") == Some(TOKEN)), "{recorded:?}");
        said += &network.echo(&server.url("localhost", "/away"), &[network.trust()]).await;
    }
    assert_snapshot!(said, @r#"
    error[server_unavailable]: MCP server 's' did not start: the server answered with HTTP status 307: only one redirect, and only on the same origin, is followed
    error[server_unavailable]: MCP server 's' did not start: the server answered with HTTP status 307: only one redirect, and only on the same origin, is followed
    error[server_unavailable]: MCP server 's' did not start: the server answered with HTTP status 307: only one redirect, and only on the same origin, is followed
    "#);
    assert_eq!(elsewhere.recorded(), []);
}

#[tokio::test]
async fn calls_share_an_http2_connection() {
    for (path, era) in [("/session", Era::Session), ("/stateless", Era::Stateless)] {
        let network = Network::new();
        let server = network.start_tls(&["h2"]).await;
        let (_gateway, client) = network.connect(&server.url("localhost", path)).await;
        // A JSON response.
        assert_eq!(text(&call(&client, "s__echo", json!({"text": "hello"})).await), "hello");
        // A stream with progress, an elicitation and the response.
        let params = json!({"name": "s__ask", "arguments": {}, "_meta": {"progressToken": "mine"}});
        let params = Some(RawJson::from(params));
        let mut pending = client.request("tools/call", params, RequestOptions::default()).await.unwrap();
        let mut n_notifications = 0;
        let result = loop {
            match pending.next_event().await {
                ResponseEvent::Notification(_) => n_notifications += 1,
                ResponseEvent::End(end) => break end.unwrap().to_value(),
            }
        };
        assert!(n_notifications >= 1, "{path}");
        assert_eq!(text(&result), "Ada", "{path}");
        // A canceled call.
        let params = Some(RawJson::from(json!({"name": "s__hang", "arguments": {}})));
        let mut hanging = client.request("tools/call", params, RequestOptions::default()).await.unwrap();
        tokio::select! {
            ended = hanging.next_event() => panic!("{ended:?}"),
            () = server.wait_for_request("hang") => (),
        }
        drop(hanging);
        let canceled = async {
            match era {
                // The notification may end the stream before its reset does.
                Era::Session => server.wait_for_request("notifications/cancelled").await,
                Era::Stateless => server.wait_for_abandoned(1).await,
            }
        };
        time::timeout(TEST_TIMEOUT, canceled).await.unwrap();
        assert_eq!(text(&call(&client, "s__echo", json!({"text": "again"})).await), "again");
        assert_eq!(server.n_connections(), 1, "{path}");
        assert!(server.recorded().iter().all(|request| request.line.ends_with("HTTP/2")), "{path}");
    }
}

#[tokio::test]
async fn a_running_gateway_does_not_stand_for_a_server_that_is_named() {
    let network = Network::new();
    let plain = RecordingServer::start_plain(remote_server::router("/")).await;
    let url = plain.url("localhost", "/mcp");
    let (_gateway, _client) = network.connect(&url).await;
    // The gateway calls this server `s`; a server that is named by its URL is called by its host.
    for (arguments, expected) in [
        (&["call", "s__echo", "text=hello"][..], "hello\n"),
        (&["--config", &url, "call", "s__echo", "text=hello"], "Unknown tool: s__echo"),
        (&["--config", &url, "call", "localhost__echo", "text=hello"], "hello\n"),
    ] {
        let mut command = network.environment.command(PROGRAM);
        command.args(arguments);
        let output = time::timeout(TEST_TIMEOUT, command.output()).await.unwrap().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        // The hint of a command follows from the reason.
        let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("  help: ")).collect();
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}
