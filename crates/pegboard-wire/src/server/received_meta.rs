//! The `_meta` of a client's request, read in one pass.

use crate::era::meta;
use pegboard_json::RawJson;

/// Field of the W3C trace context.
const TRACE_PARENT: &str = "traceparent";

/// The fields of the `_meta` of a client's request.
#[derive(Default)]
pub(super) struct ReceivedMeta {
    pub(super) progress_token: Option<RawJson>,
    pub(super) version: Option<RawJson>,
    pub(super) client_info: Option<RawJson>,
    pub(super) capabilities: Option<RawJson>,
    pub(super) log_level: Option<RawJson>,
    pub(super) forwarded: ForwardedMeta,
}

/// The part of the `_meta` of a client's request that a service passes on.
#[derive(Clone, Debug, Default)]
pub struct ForwardedMeta {
    /// The fields that the protocol does not define, if there are any.
    pub custom: Option<RawJson>,
    /// The W3C trace context, which is also a custom field.
    pub trace_parent: Option<RawJson>,
}

impl ReceivedMeta {
    /// Reads the `_meta` of a request with these parameters.
    pub(super) fn of(params: Option<&RawJson>) -> Self {
        let Some(given) = params.and_then(|params| params.get("_meta")) else { return Self::default() };
        let [token, version, info, capabilities, level] = meta::PROTOCOL_FIELDS;
        let names = [token, version, info, capabilities, level, TRACE_PARENT];
        let ([progress_token, version, client_info, capabilities, log_level, trace_parent], has_others) =
            given.get_known(names);
        let has_custom = has_others || trace_parent.is_some();
        let custom = has_custom.then(|| given.with_all(&meta::PROTOCOL_FIELDS.map(|name| (name, None))));
        let forwarded = ForwardedMeta { custom, trace_parent };
        Self { progress_token, version, client_info, capabilities, log_level, forwarded }
    }
}
