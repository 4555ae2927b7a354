//! Faulty lists of tools.

use serde_json::{Value, json};

use super::StdioFault;
use crate::hostile::well_behaved::{self, tool};

/// Returns the response to `tools/list`; `None` if there is none.
pub(super) fn answer(mode: StdioFault, message: &Value, decent: &Value) -> Option<Value> {
    let id = &message["id"];
    let page: u64 = message["params"]["cursor"].as_str().and_then(|page| page.parse().ok()).unwrap_or(0);
    let mut tools = well_behaved::tools();
    match mode {
        StdioFault::ListNever => return None,
        StdioFault::ListEndless => {
            if page > 0 {
                tools = vec![tool(&format!("page_{page}"))];
            }
            return Some(well_behaved::result(
                id,
                &json!({"tools": tools, "nextCursor": (page + 1).to_string()}),
            ));
        }
        StdioFault::ListLoop => {
            return Some(well_behaved::result(id, &json!({"tools": tools, "nextCursor": "1"})));
        }
        StdioFault::ListHuge => tools.extend((0..20_000).map(|number| large_tool(&format!("tool_{number}")))),
        StdioFault::ListDuplicates => tools = [&tools[..]; 3].concat(),
        StdioFault::ListMalformed => {
            let bad = [
                Value::Null,
                json!(7),
                json!({}),
                json!({"name": 7}),
                json!({"name": ""}),
                json!({"name": "x".repeat(10_000), "inputSchema": {"type": "object"}}),
                json!({"name": "schemaless", "inputSchema": "none"}),
            ];
            tools.splice(0..0, bad);
        }
        _ => return Some(decent.clone()),
    }
    Some(well_behaved::result(id, &json!({"tools": tools})))
}

/// Returns a tool of typical size.
fn large_tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": "Looks for something, and says where it is, or that it is not there at all.",
        "inputSchema": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for"}, "limit": {"type": "integer"}},
            "required": ["query"],
        },
    })
}
