//! Clients of the stateless era, with self-contained requests.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hmac_sha256::Hash as Sha256;
use serde::Serialize;

use super::input_requests::check_capabilities;
use super::received_meta::ReceivedMeta;
use super::{
    ClientDescription, ForwardedMeta, Peer, ServerRequest, ServiceReply, ServiceServer, subscription,
};
use crate::era::{self, LogLevel, Revision, meta};
use crate::http::received_headers::ReceivedHeaders;
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

/// Answers one request with its parsed `_meta`.
pub(crate) async fn call(
    server: ServiceServer,
    request: Request,
    mut request_meta: RequestMeta,
    headers: ReceivedHeaders,
    peer: Peer,
) -> Result<RawJson, RpcError> {
    let params = request.params.clone().unwrap_or_else(RawJson::empty_object);
    if REMOVED_METHODS.contains(&&*request.method) {
        return Err(RpcError::method_not_found(&request.method));
    }
    let peer = peer.with_progress(request_meta.progress_token.take(), request_meta.log_level);
    let describe = || server.service.describe_for(request_meta.revision, &request_meta.client);
    match &*request.method {
        "server/discover" => {
            server.service.prepare(request_meta.revision, &request_meta.client).await;
            let description = describe();
            let ttl = server.service.description_ttl(&request_meta.client);
            let mut discovered = discover_result(&description).with("ttlMs", &RawJson::of(&ttl.as_millis()));
            if let Some(extra_meta) = server.service.extra_meta(&request_meta.client) {
                discovered = discovered.with("_meta", &extra_meta);
            }
            Ok(with_required_fields(discovered, &request.method, server.info_meta()))
        }
        // Boxed, so that the futures of all other requests stay small.
        "subscriptions/listen" => Box::pin(subscription::listen(&server, &request, &describe(), &peer)).await,
        _ => {
            let [input_responses, signed_state] = params.get_all(["inputResponses", "requestState"]);
            let state = match signed_state {
                Some(signed) => Some(verified_state(&server, &request.method, &params, &signed)?),
                None => None,
            };
            let server_request = ServerRequest {
                method: Arc::clone(&request.method),
                revision: request_meta.revision,
                session: None,
                client: Arc::clone(&request_meta.client),
                forwarded_meta: request_meta.forwarded,
                input_responses: input_responses.filter(RawJson::is_object),
                state,
                params: params.clone(),
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
                    let sign = |state: Bytes| server.signer.sign(&purpose(&request.method, &params), &state);
                    input_required(&input_requests, state.map(sign))
                }
            };
            let result = with_required_fields(result, &request.method, server.info_meta());
            Ok(server.response_memory.hold(result)?)
        }
    }
}

/// The `_meta` of a stateless request.
pub(crate) struct RequestMeta {
    revision: Revision,
    client: Arc<ClientDescription>,
    log_level: Option<LogLevel>,
    progress_token: Option<RawJson>,
    forwarded: ForwardedMeta,
}

impl RequestMeta {
    /// Parses the `_meta` of a request, or rejects the request if required fields are missing.
    pub(crate) fn parse(params: Option<&RawJson>) -> Result<Self, RpcError> {
        let received = ReceivedMeta::of(params);
        let version = received.version.as_ref().and_then(RawJson::text);
        let version = version.ok_or_else(|| missing_meta(meta::PROTOCOL_VERSION))?;
        let revision = version.parse::<Revision>().ok().filter(|revision| revision.is_stateless());
        let revision = revision.ok_or_else(|| era::unsupported_version(&version))?;
        let capabilities = received.capabilities.filter(RawJson::is_object);
        let capabilities = capabilities.ok_or_else(|| missing_meta(meta::CLIENT_CAPABILITIES))?;
        let log_level = match received.log_level {
            None => None,
            Some(level) => Some(level.read().map_err(|_| RpcError::invalid_params("unknown log level"))?),
        };
        let client = Arc::new(ClientDescription { info: received.client_info, capabilities });
        let (progress_token, forwarded) = (received.progress_token, received.forwarded);
        Ok(Self { revision, client, log_level, progress_token, forwarded })
    }

    /// Returns the revision of the request, which is written just like this.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
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
    format!("{method} {}", URL_SAFE_NO_PAD.encode(Sha256::hash(fixed.to_string().as_bytes())))
}

fn verified_state(
    server: &ServiceServer,
    method: &str,
    params: &RawJson,
    signed: &RawJson,
) -> Result<Bytes, RpcError> {
    let signed = signed.text().ok_or_else(|| RpcError::invalid_params("requestState must be a string"))?;
    server.signer.verify(&purpose(method, params), &signed).map_err(RpcError::invalid_params)
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
fn with_required_fields(result: RawJson, method: &str, info_meta: &RawJson) -> RawJson {
    let [result_type, ttl, scope, own] = result.get_all(["resultType", "ttlMs", "cacheScope", "_meta"]);
    let literal = |text: &'static str| RawJson::trusted(Bytes::from_static(text.as_bytes()));
    let is_cacheable = CACHEABLE.contains(&method);
    let added = [
        ("resultType", result_type.is_none().then(|| literal("\"complete\""))),
        ("ttlMs", (is_cacheable && ttl.is_none()).then(|| literal("0"))),
        ("cacheScope", (is_cacheable && scope.is_none()).then(|| literal("\"private\""))),
        ("_meta", own.is_none().then(|| info_meta.clone())),
    ];
    let own = own.filter(|own| own.get(meta::SERVER_INFO).is_none());
    let result = match own.and_then(|own| Some((own, info_meta.get(meta::SERVER_INFO)?))) {
        Some((own, info)) => result.with("_meta", &own.with(meta::SERVER_INFO, &info)),
        None => result,
    };
    // Nothing shares the result any more, so that it is extended in place.
    drop((result_type, ttl, scope));
    let mut members = [("", info_meta); 4];
    let mut n_members = 0;
    for (name, value) in &added {
        if let Some(value) = value {
            members[n_members] = (*name, value);
            n_members += 1;
        }
    }
    result.append(&members[..n_members])
}
