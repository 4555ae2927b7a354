//! Logins at servers, with a browser that agrees at once.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use pegboard::wire::client::{ClientOptions, Era, McpClient};
use pegboard::wire::http::client::HttpOptions;
use pegboard::wire::{Id, InboundHandler, InboundRequest, Notification, RawJson, RpcError};
use pegboard_testkit::authorization_server::AuthorizationServer;
use reqwest::redirect;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time;

use crate::harness::{Endpoint, PROGRAM, TEST_TIMEOUT, TestEnvironment, call, listed, listed_once, text};

/// A configuration with one server that requires a login.
struct LoginTest {
    environment: TestEnvironment,
    server: AuthorizationServer,
}

impl LoginTest {
    async fn new() -> Self {
        let (environment, server) = (TestEnvironment::new(), AuthorizationServer::start().await);
        let servers = json!({"s": {"type": "http", "url": server.url.as_str()}});
        environment.write("pegboard.json", &json!({"mcpServers": servers}).to_string());
        Self { environment, server }
    }

    fn command(&self) -> Command {
        let mut command = self.environment.command(PROGRAM);
        command.env("PEGBOARD_KEYRING", "off").arg("--trust");
        command
    }

    /// Runs a command; returns everything that it prints.
    async fn run(&self, arguments: &[&str]) -> String {
        let output = time::timeout(TEST_TIMEOUT, self.command().args(arguments).output()).await;
        let output = output.unwrap().unwrap();
        let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        for secret in self.server.issued() {
            assert!(arguments[..2] == ["auth", "token"] || !printed.contains(&secret), "{printed}");
        }
        printed.replace(&self.server.url.port().unwrap().to_string(), "PORT")
    }

    /// Starts a login, and returns the URL for the browser.
    async fn begin_login(&self, options: &[&str]) -> PendingCommand {
        let mut command = self.command();
        command.args(["auth", "login", "s", "--no-browser"]).args(options);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reading = async {
            let mut seen = Vec::new();
            while let Some(line) = lines.next_line().await.unwrap() {
                if let Some(url) = line.strip_prefix("  http") {
                    return format!("http{url}");
                }
                seen.push(line);
            }
            panic!("no URL: {seen:?}");
        };
        let url = time::timeout(TEST_TIMEOUT, reading).await.unwrap();
        PendingCommand { child, url }
    }

    /// Logs in, and returns the last page and what the command prints.
    async fn log_in(&self, options: &[&str]) -> (String, String) {
        let pending = self.begin_login(options).await;
        let page = reqwest::get(&pending.url).await.unwrap().text().await.unwrap();
        (page, pending.output().await)
    }
}

/// A command that waits for the browser.
struct PendingCommand {
    child: Child,
    url: String,
}

impl PendingCommand {
    async fn output(self) -> String {
        let output = time::timeout(TEST_TIMEOUT, self.child.wait_with_output()).await.unwrap().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the URL to which the authorization server sends the browser.
    async fn last_url(&self) -> String {
        let browser = reqwest::Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        let response = browser.get(&self.url).send().await.unwrap();
        response.headers()["location"].to_str().unwrap().to_owned()
    }
}

/// Asserts that no file under a folder contains one of these texts.
fn assert_in_no_file(folder: &Path, secrets: &[String]) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_in_no_file(&path, secrets);
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            for secret in secrets {
                let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!is_there, "{secret} in {}", path.display());
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_requires_a_login_works_after_it() {
    let test = LoginTest::new().await;
    let said = test.run(&["call", "s__echo", "text=hello"]).await;
    assert!(said.contains("requires a login. Run `pegboard auth login s`"), "{said}");
    assert_eq!(test.run(&["auth", "status"]).await, "default/s  not logged in\n");

    let (page, said) = test.log_in(&[]).await;
    assert!(page.contains("<h1>Logged in to s</h1>"), "{page}");
    assert_eq!(said, "Logged in to s\n");
    assert_eq!(test.run(&["call", "s__echo", "text=hello"]).await, "hello\n");
    assert_eq!(test.run(&["auth", "status"]).await, "default/s  logged in, renewed automatically\n");
    let token = test.run(&["auth", "token", "s"]).await;
    assert_eq!(test.server.authorizations(), [format!("Bearer {}", token.trim())]);

    // A token that ends early is replaced, and the call is sent again.
    test.server.expire_all();
    assert_eq!(test.run(&["call", "s__echo", "text=again"]).await, "again\n");
    assert_eq!(test.server.n_refreshes(), 1);
    assert_in_no_file(test.environment.folder(), &test.server.issued());

    assert_eq!(test.run(&["auth", "logout", "s"]).await, "Logged out of s\n");
    let said = test.run(&["call", "s__echo", "text=hello"]).await;
    assert!(said.contains("requires a login"), "{said}");
}

#[tokio::test]
async fn the_url_of_the_last_page_can_be_pasted() {
    let test = LoginTest::new().await;
    let mut pending = test.begin_login(&[]).await;
    let url = pending.last_url().await;
    let mut input = pending.child.stdin.take().unwrap();
    let forged = url.replace("state=", "state=x");
    input.write_all(format!("\nhello\n{forged}\n{url}\n").as_bytes()).await.unwrap();
    assert_eq!(pending.output().await, "Logged in to s\n");
    assert_eq!(test.run(&["call", "s__echo", "text=hello"]).await, "hello\n");
}

#[tokio::test]
async fn pages_of_others_do_not_end_a_login() {
    let test = LoginTest::new().await;
    let pending = test.begin_login(&[]).await;
    let url = pending.last_url().await;
    let get = async |url: &str, host: Option<&str>| {
        let request = reqwest::Client::new().get(url);
        let request = host.into_iter().fold(request, |request, host| request.header("host", host));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    let refused = [
        (url.replace("state=", "state=x"), None, 400),
        (url.replace("/callback", "/other"), None, 404),
        (url.split('?').next().unwrap().to_owned(), None, 400),
        (url.clone(), Some("rebound.example.org"), 404),
    ];
    for (url, host, status) in refused {
        let (found, page) = get(&url, host).await;
        assert_eq!(found, status, "{url} {host:?}");
        assert!(page.contains("does not belong to a login"), "{page}");
    }
    assert_eq!(get(&url, None).await.0, 200);
    assert_eq!(pending.output().await, "Logged in to s\n");
}

#[tokio::test]
async fn a_login_that_fails_says_so_in_the_browser_and_on_the_terminal() {
    let test = LoginTest::new().await;
    test.server.set(|behaviour| behaviour.refuse_login = Some("<b>access_denied</b>".to_owned()));
    let (page, said) = test.log_in(&[]).await;
    assert!(page.contains("the login was refused: &lt;b&gt;access_denied&lt;/b&gt;"), "{page}");
    assert_eq!(said, "");
    test.server.set(|behaviour| {
        behaviour.refuse_login = None;
        behaviour.redirect_issuer = Some("https://other.example.org".to_owned());
    });
    let (page, _) = test.log_in(&[]).await;
    assert!(page.contains("Not logged in to s") && page.contains("issuer mismatch"), "{page}");
    assert_eq!(test.run(&["auth", "status"]).await, "default/s  not logged in\n");
}

#[tokio::test]
async fn a_revoked_login_is_shown_with_its_remedy() {
    let test = LoginTest::new().await;
    test.log_in(&[]).await;
    test.server.expire_all();
    test.server.revoke_all();
    let said = test.run(&["call", "s__echo", "text=hello"]).await;
    assert!(
        said.contains("was revoked or has expired at the authorization server. Run `pegboard auth login s`")
    );
    let reason = "login required: the login was revoked or has expired at the authorization server";
    assert_eq!(test.run(&["auth", "status"]).await, format!("default/s  {reason}\n"));
    let said = test.run(&["doctor", "s"]).await;
    assert!(said.contains("login required") && said.contains("pegboard auth login s"), "{said}");
    test.log_in(&[]).await;
    assert_eq!(test.run(&["call", "s__echo", "text=hello"]).await, "hello\n");
}

#[tokio::test]
async fn a_running_gateway_uses_a_login_at_once_and_refreshes_it_once_for_all_calls() {
    let test = LoginTest::new().await;
    let mut command = test.command();
    command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat"]);
    let endpoint = Endpoint::start(command).await;
    let (client, _) = endpoint.client(None, Era::Session).await;
    assert!(listed(&client).await.iter().all(|tool| tool["name"] != "s__echo"));
    let status = test.run(&["status"]).await;
    assert!(status.contains("pegboard auth login s"), "{status}");

    let (_, said) = test.log_in(&[]).await;
    assert_eq!(said, "Logged in to s: 3 tools\n");
    listed_once(&client, 3).await;
    let echo = async |word: String| text(&call(&client, "s__echo", json!({"text": word})).await);
    assert_eq!(echo("hello".to_owned()).await, "hello");

    test.server.expire_all();
    let calls = (0..200).map(|number| echo(number.to_string()));
    let answers = time::timeout(TEST_TIMEOUT, join_all(calls)).await.unwrap();
    assert_eq!(answers, (0..200).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!((test.server.n_refreshes(), test.server.n_calls()), (1, 201));

    test.run(&["auth", "logout", "s"]).await;
    let said = test.run(&["call", "s__echo", "text=hello"]).await;
    assert!(said.contains("pegboard auth login s"), "{said}");
}

/// A client with a user who opens every URL that the gateway shows.
struct BrowsingHandler;

impl InboundHandler for BrowsingHandler {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let params = inbound.request.params.map(|params| params.to_value()).unwrap_or_default();
        async move {
            assert_eq!(params["mode"], "url");
            let page = reqwest::get(params["url"].as_str().unwrap()).await.unwrap().text().await.unwrap();
            assert!(page.contains("<h1>Logged in to s</h1>"), "{page}");
            Ok(RawJson::from(json!({"action": "accept"})))
        }
        .boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}

#[tokio::test]
async fn a_call_that_needs_a_login_shows_its_url_and_goes_on_after_it() {
    for era in [Era::Session, Era::Stateless] {
        let test = LoginTest::new().await;
        // Its tools are known from an earlier login.
        test.log_in(&[]).await;
        test.run(&["call", "s__echo", "text=hello"]).await;
        test.run(&["auth", "logout", "s"]).await;
        let mut command = test.command();
        command.args(["serve", "--http", "127.0.0.1:0", "--profile", "flat"]);
        let endpoint = Endpoint::start(command).await;
        let options = HttpOptions::new(endpoint.url(None).parse().unwrap());
        let capabilities = RawJson::from(json!({"elicitation": {"form": {}, "url": {}}}));
        let options =
            (options, ClientOptions { era: Some(era), capabilities, ..ClientOptions::new("test", "1") });
        let transport = pegboard::wire::http::client::connect(options.0).unwrap();
        let client = McpClient::connect(transport, Arc::new(BrowsingHandler), options.1).await.unwrap();
        let said = call(&client, "s__echo", json!({"text": "hello"})).await;
        assert_eq!((text(&said), test.server.n_calls()), ("hello".to_owned(), 2), "{era:?}");
    }
}

#[tokio::test]
async fn a_call_that_lacks_a_permission_leaves_the_server_to_others() {
    let test = LoginTest::new().await;
    test.log_in(&[]).await;
    test.server.set(|behaviour| behaviour.required_scope = Some("write".to_owned()));
    let said = test.run(&["call", "s__echo", "text=hello"]).await;
    assert!(said.contains("The login lacks permissions (write). Run `pegboard auth login s`."), "{said}");
    let tools: Value = serde_json::from_str(&test.run(&["ls", "--json"]).await).unwrap();
    assert!(tools.to_string().contains("\"ready\""), "{tools}");
    // The next login asks for it, and keeps what there was.
    test.log_in(&[]).await;
    assert_eq!(test.run(&["call", "s__echo", "text=hello"]).await, "hello\n");
    let status: Value = serde_json::from_str(&test.run(&["auth", "status", "--json"]).await).unwrap();
    assert_eq!(status["logins"][0]["scopes"], json!(["read", "write"]));
}
