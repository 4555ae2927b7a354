//! Clients whose every request stands alone.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::round::check_capabilities;
use super::{ClientDescription, Peer, Reply, Server, ServerRequest, subscription};
use crate::era::{self, LogLevel, Revision, meta};
use crate::message::{Request, RpcError, code};
use pegboard_json::RawJson;

/// The methods whose results say how long they may be kept.
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// The methods that may come back with questions.
const MAY_ASK: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// The methods that went with the sessions.
const GONE: [&str; 6] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list"];

/// Answers one request.
pub(crate) fn call(
    server: &Server,
    request: Request,
    headers: HeaderMap,
    peer: Peer,
) -> impl Future<Output = Result<RawJson, RpcError>> + Send + use<> {
    answer(server.clone(), request, headers, peer)
}

async fn answer(
    server: Server,
    request: Request,
    headers: HeaderMap,
    peer: Peer,
) -> Result<RawJson, RpcError> {
    let params = request.params.clone().unwrap_or_else(RawJson::empty_object);
    let claims = Claims::of(&params)?;
    if GONE.contains(&&*request.method) {
        return Err(RpcError::method_not_found(&request.method));
    }
    let peer = peer.with_wishes(params.at(&["_meta", "progressToken"]), claims.log_level);
    let describe = || server.service.describe_to(claims.revision, &claims.client);
    match &*request.method {
        "server/discover" => {
            let description = describe();
            let mut discovered = discovered(&description);
            if let Some(remarks) = server.service.remarks(&claims.client) {
                discovered = discovered.with("_meta", &remarks);
            }
            Ok(finished(&discovered, &request.method, &description.info))
        }
        "subscriptions/listen" => subscription::listen(&server, &request, &describe(), &peer).await,
        _ => {
            let purpose = purpose(&request.method, &params);
            let server_request = ServerRequest {
                method: Arc::clone(&request.method),
                revision: claims.revision,
                session: None,
                client: claims.client.clone(),
                answers: params.get("inputResponses").filter(RawJson::is_object),
                state: opened_state(&server, &purpose, &params)?,
                params,
                headers,
                peer,
            };
            let result = match server.service.call(server_request).await? {
                Reply::Result(result) => result,
                Reply::InputRequired { questions, state } => {
                    if !MAY_ASK.contains(&&*request.method) {
                        return Err(RpcError::new(
                            code::INTERNAL_ERROR,
                            "This request must not ask the client",
                        ));
                    }
                    check_capabilities(&claims.client, &questions)?;
                    input_required(&questions, state.map(|state| server.seal.close(&purpose, &state)))
                }
            };
            Ok(finished(&result, &request.method, &server.service.info()))
        }
    }
}

/// Refuses a request that does not say of itself what this era asks.
pub(crate) fn check(request: &Request) -> Result<(), RpcError> {
    Claims::of(&request.params.clone().unwrap_or_else(RawJson::empty_object)).map(drop)
}

/// What a request says of itself in `_meta`.
struct Claims {
    revision: Revision,
    client: ClientDescription,
    log_level: Option<LogLevel>,
}

impl Claims {
    fn of(params: &RawJson) -> Result<Self, RpcError> {
        let meta = params.get("_meta").unwrap_or_else(RawJson::empty_object);
        let version = meta.get(meta::PROTOCOL_VERSION);
        let version =
            version.as_ref().and_then(RawJson::text).ok_or_else(|| missing(meta::PROTOCOL_VERSION))?;
        let revision = version.parse::<Revision>().ok().filter(|revision| revision.is_stateless());
        let revision = revision.ok_or_else(|| era::unsupported_version(&version))?;
        let capabilities = meta.get(meta::CLIENT_CAPABILITIES).filter(RawJson::is_object);
        let capabilities = capabilities.ok_or_else(|| missing(meta::CLIENT_CAPABILITIES))?;
        let log_level = match meta.get(meta::LOG_LEVEL) {
            None => None,
            Some(level) => {
                Some(level.read().map_err(|_| RpcError::invalid_params("the log level is not known"))?)
            }
        };
        Ok(Self {
            revision,
            client: ClientDescription { info: meta.get(meta::CLIENT_INFO), capabilities },
            log_level,
        })
    }
}

fn missing(key: &str) -> RpcError {
    RpcError::invalid_params(format_args!("_meta must carry '{key}'"))
}

/// What state is sealed for: the method, and everything the client may not change between the rounds.
fn purpose(method: &str, params: &RawJson) -> String {
    let fixed = params.without("inputResponses").without("requestState").without("_meta");
    let mut fixed = fixed.to_value();
    // A client may write the same members in another order.
    fixed.sort_all_objects();
    format!("{method} {}", URL_SAFE_NO_PAD.encode(Sha256::digest(fixed.to_string())))
}

fn opened_state(server: &Server, purpose: &str, params: &RawJson) -> Result<Option<Bytes>, RpcError> {
    let Some(sealed) = params.get("requestState") else { return Ok(None) };
    let sealed = sealed.text().ok_or_else(|| RpcError::invalid_params("requestState must be a string"))?;
    server.seal.open(purpose, &sealed).map(Some).map_err(RpcError::invalid_params)
}

fn discovered(description: &super::Description) -> RawJson {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Discovered {
        supported_versions: [Revision; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    }
    let result = Discovered {
        supported_versions: [Revision::NEWEST_STATELESS],
        instructions: description.instructions.clone(),
    };
    RawJson::of(&result).with("capabilities", &description.capabilities)
}

fn input_required(questions: &RawJson, sealed: Option<String>) -> RawJson {
    let result = RawJson::of(&serde_json::json!({"resultType": "input_required"}));
    let result = if questions.names().is_empty() { result } else { result.with("inputRequests", questions) };
    match sealed {
        Some(sealed) => result.with("requestState", &RawJson::of(&sealed)),
        None => result,
    }
}

/// A result with what this era asks of every result, where the service left it out.
fn finished(result: &RawJson, method: &str, info: &RawJson) -> RawJson {
    let mut result = result.clone();
    let mut set = |name: &str, value: &str| {
        if result.get(name).is_none() {
            result = result.with(name, &RawJson::trusted(Bytes::copy_from_slice(value.as_bytes())));
        }
    };
    set("resultType", "\"complete\"");
    if CACHEABLE.contains(&method) {
        set("ttlMs", "0");
        set("cacheScope", "\"private\"");
    }
    let own = result.get("_meta").unwrap_or_else(RawJson::empty_object);
    if own.get(meta::SERVER_INFO).is_some() {
        return result;
    }
    result.with("_meta", &own.with(meta::SERVER_INFO, info))
}
