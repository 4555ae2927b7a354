//! Arguments that stateless clients mirror in headers, cached by tool.

use foldhash::HashMap;
use parking_lot::Mutex;
use pegboard_json::RawJson;
use pegboard_wire::http::headers::{HeaderParameter, header_parameters};

/// Maximum number of names that are cached: a tool has several.
const MAX_NAMES: usize = 4_096;

/// The mirrored arguments of tools, by the name that clients used.
#[derive(Default)]
pub(crate) struct HeaderParameterCache(Mutex<HashMap<String, Vec<HeaderParameter>>>);

impl HeaderParameterCache {
    /// Returns the mirrored arguments of a tool. `definition` returns its definition, if there is such a tool.
    pub(crate) fn get(
        &self,
        tool: &str,
        definition: impl FnOnce() -> Option<RawJson>,
    ) -> Vec<HeaderParameter> {
        if let Some(known) = self.0.lock().get(tool) {
            return known.clone();
        }
        let Some(definition) = definition() else { return Vec::new() };
        // A schema with unusable annotations requires no headers.
        let parameters = header_parameters(definition.get("inputSchema").as_ref()).unwrap_or_default();
        let mut known = self.0.lock();
        if known.len() < MAX_NAMES {
            known.insert(tool.to_owned(), parameters.clone());
        }
        parameters
    }
}
