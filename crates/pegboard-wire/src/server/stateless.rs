//! Clients of the stateless era, with self-contained requests.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::input_requests::check_capabilities;
use super::{ClientDescription, Peer, ServerRequest, ServiceReply, ServiceServer, subscription};
use crate::era::{self, LogLevel, Revision, meta};
use crate::message::{Request, RpcError, code};
use pegboard_json::RawJson;

/// Methods with cacheable results.
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// Methods that may answer with input requests.
const INPUT_METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Methods of the session era that the stateless era has removed.
const REMOVED_METHODS: [&str; 6] =
    ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "roots/list"];

/// Answers one request.
pub(crate) fn call(
    server: &ServiceServer,
    request: Request,
    headers: HeaderMap,
    peer: Peer,
) -> impl Future<Output = Result<RawJson, RpcError>> + Send + use<> {
    answer(server.clone(), request, headers, peer)
}

async fn answer(
    server: ServiceServer,
    request: Request,
    headers: HeaderMap,
    peer: Peer,
) -> Result<RawJson, RpcError> {
    let params = request.params.clone().unwrap_or_else(RawJson::empty_object);
    let request_meta = RequestMeta::parse(&params)?;
    if REMOVED_METHODS.contains(&&*request.method) {
        return Err(RpcError::method_not_found(&request.method));
    }
    let peer = peer.with_progress(params.at(&["_meta", "progressToken"]), request_meta.log_level);
    let describe = || server.service.describe_for(request_meta.revision, &request_meta.client);
    match &*request.method {
        "server/discover" => {
            let description = describe();
            let mut discovered = discover_result(&description);
            if let Some(extra_meta) = server.service.extra_meta(&request_meta.client) {
                discovered = discovered.with("_meta", &extra_meta);
            }
            Ok(with_required_fields(&discovered, &request.method, &description.info))
        }
        "subscriptions/listen" => subscription::listen(&server, &request, &describe(), &peer).await,
        _ => {
            let purpose = purpose(&request.method, &params);
            let server_request = ServerRequest {
                method: Arc::clone(&request.method),
                revision: request_meta.revision,
                session: None,
                client: request_meta.client.clone(),
                input_responses: params.get("inputResponses").filter(RawJson::is_object),
                state: verified_state(&server, &purpose, &params)?,
                params,
                headers,
                peer,
            };
            let result = match server.service.call(server_request).await? {
                ServiceReply::Result(result) => result,
                ServiceReply::InputRequired { input_requests, state } => {
                    if !INPUT_METHODS.contains(&&*request.method) {
                        return Err(RpcError::new(
                            code::INTERNAL_ERROR,
                            "This method does not support input requests",
                        ));
                    }
                    check_capabilities(&request_meta.client, &input_requests)?;
                    input_required(&input_requests, state.map(|state| server.signer.sign(&purpose, &state)))
                }
            };
            Ok(with_required_fields(&result, &request.method, &server.service.info()))
        }
    }
}

/// Rejects a request without the required `_meta`.
pub(crate) fn check(request: &Request) -> Result<(), RpcError> {
    RequestMeta::parse(&request.params.clone().unwrap_or_else(RawJson::empty_object)).map(drop)
}

/// The `_meta` of a stateless request.
struct RequestMeta {
    revision: Revision,
    client: ClientDescription,
    log_level: Option<LogLevel>,
}

impl RequestMeta {
    fn parse(params: &RawJson) -> Result<Self, RpcError> {
        let meta = params.get("_meta").unwrap_or_else(RawJson::empty_object);
        let version = meta.get(meta::PROTOCOL_VERSION);
        let version =
            version.as_ref().and_then(RawJson::text).ok_or_else(|| missing_meta(meta::PROTOCOL_VERSION))?;
        let revision = version.parse::<Revision>().ok().filter(|revision| revision.is_stateless());
        let revision = revision.ok_or_else(|| era::unsupported_version(&version))?;
        let capabilities = meta.get(meta::CLIENT_CAPABILITIES).filter(RawJson::is_object);
        let capabilities = capabilities.ok_or_else(|| missing_meta(meta::CLIENT_CAPABILITIES))?;
        let log_level = match meta.get(meta::LOG_LEVEL) {
            None => None,
            Some(level) => Some(level.read().map_err(|_| RpcError::invalid_params("unknown log level"))?),
        };
        Ok(Self {
            revision,
            client: ClientDescription { info: meta.get(meta::CLIENT_INFO), capabilities },
            log_level,
        })
    }
}

fn missing_meta(key: &str) -> RpcError {
    RpcError::invalid_params(format_args!("_meta must contain '{key}'"))
}

/// Returns the purpose that state is signed for: the method, and everything the client must not change
/// between rounds.
fn purpose(method: &str, params: &RawJson) -> String {
    let fixed = params.without("inputResponses").without("requestState").without("_meta");
    let mut fixed = fixed.to_value();
    // A client may reorder object members.
    fixed.sort_all_objects();
    format!("{method} {}", URL_SAFE_NO_PAD.encode(Sha256::digest(fixed.to_string())))
}

fn verified_state(
    server: &ServiceServer,
    purpose: &str,
    params: &RawJson,
) -> Result<Option<Bytes>, RpcError> {
    let Some(signed) = params.get("requestState") else { return Ok(None) };
    let signed = signed.text().ok_or_else(|| RpcError::invalid_params("requestState must be a string"))?;
    server.signer.verify(purpose, &signed).map(Some).map_err(RpcError::invalid_params)
}

fn discover_result(description: &super::ServiceDescription) -> RawJson {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct DiscoverResult {
        supported_versions: [Revision; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
    }
    let result = DiscoverResult {
        supported_versions: [Revision::NEWEST_STATELESS],
        instructions: description.instructions.clone(),
    };
    RawJson::of(&result).with("capabilities", &description.capabilities)
}

fn input_required(input_requests: &RawJson, signed: Option<String>) -> RawJson {
    let result = RawJson::of(&serde_json::json!({"resultType": "input_required"}));
    let result =
        if input_requests.names().is_empty() { result } else { result.with("inputRequests", input_requests) };
    match signed {
        Some(signed) => result.with("requestState", &RawJson::of(&signed)),
        None => result,
    }
}

/// Adds the fields that the stateless era requires of every result, where the service left them out.
fn with_required_fields(result: &RawJson, method: &str, info: &RawJson) -> RawJson {
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
