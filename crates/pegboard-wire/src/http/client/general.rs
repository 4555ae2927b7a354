//! The general HTTP client: TLS, HTTP/2, proxies.

use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;

use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use reqwest::{Client, Url, redirect, retry};

use crate::http::client::pool::{IDLE_TIMEOUT, KEEP_ALIVE, NO_ANSWER, UNREACHABLE, describe, network_error};
use crate::transport::TransportError;

/// Identifies this client to servers.
pub(super) const AGENT: &str = concat!("pegboard/", env!("CARGO_PKG_VERSION"));

/// The proxies of the environment, as the general client sees them.
static PROXIES: LazyLock<Matcher> = LazyLock::new(Matcher::from_env);

/// The general HTTP client, created on first use: loading the certificates of the system takes a while.
/// Clones share it.
#[derive(Clone, Debug, Default)]
pub struct LazyHttpClient(Arc<GeneralClients>);

/// One client for all requests over TLS, and one for all others: these work without trusted certificates.
#[derive(Debug, Default)]
struct GeneralClients {
    tls: OnceLock<Client>,
    plain: OnceLock<Client>,
}

impl LazyHttpClient {
    /// Returns the client for a URL, which follows no redirects and retries no requests. The timeout counts if
    /// this creates it. An error is not kept, so that the next use finds certificates that were repaired.
    pub fn get(&self, url: &Url, connect_timeout: Duration) -> Result<Client, TransportError> {
        let proxy = proxy_of(url);
        let proxy_scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str());
        if !matches!(proxy_scheme, None | Some("http" | "https")) {
            let proxy = proxy.as_ref().map(proxy_address).unwrap_or_default();
            let what = format!("the proxy {proxy} is not supported: use one that speaks HTTP");
            return Err(TransportError::failed(what));
        }
        let needs_tls = url.scheme() == "https" || proxy_scheme == Some("https");
        let client = if needs_tls { &self.0.tls } else { &self.0.plain };
        if let Some(client) = client.get() {
            return Ok(client.clone());
        }
        let builder = builder(connect_timeout);
        let builder = if needs_tls { builder } else { builder.tls_certs_only([]) };
        let created = builder.build().map_err(|error| {
            let error = error.without_url();
            TransportError::untrusted(&error)
                .unwrap_or_else(|| network_error("cannot create an HTTP client", &error))
        })?;
        Ok(client.get_or_init(|| created).clone())
    }
}

fn builder(connect_timeout: Duration) -> reqwest::ClientBuilder {
    Client::builder()
        .user_agent(AGENT)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .connect_timeout(connect_timeout)
}

/// Returns the origin of a URL that is reached by plain HTTP without a proxy.
pub(super) fn direct_origin(url: &Url) -> Option<Uri> {
    if url.scheme() != "http" || proxy_of(url).is_some() {
        return None;
    }
    origin(url)
}

fn origin(url: &Url) -> Option<Uri> {
    url.origin().ascii_serialization().parse().ok()
}

/// Returns the proxy of the environment for a URL.
fn proxy_of(url: &Url) -> Option<Intercept> {
    PROXIES.intercept(&origin(url)?)
}

/// Returns the address of a proxy without its credentials.
fn proxy_address(proxy: &Intercept) -> String {
    let uri = proxy.uri();
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}", uri.scheme_str().unwrap_or("http"))
}

/// Converts the error of a request without a response.
pub(super) fn request_error(url: &Url, error: reqwest::Error) -> TransportError {
    let error = error.without_url();
    if let Some(untrusted) = TransportError::untrusted(&error) {
        return untrusted;
    }
    if !error.is_connect() {
        return network_error(NO_ANSWER, &error);
    }
    let what = match proxy_of(url) {
        Some(proxy) => {
            describe(&format!("{UNREACHABLE} through the proxy {}", proxy_address(&proxy)), &error)
        }
        None => describe(UNREACHABLE, &error),
    };
    TransportError::Unreachable { what }
}

/// Converts the error of a response without an end.
pub(super) fn body_error(error: reqwest::Error) -> TransportError {
    network_error("the response was cut off", &error.without_url())
}
