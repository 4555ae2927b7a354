//! Instructions of a server, for models.

use pegboard_core::text::clipped;
use pegboard_json::RawJson;

/// Maximum length of the server's own instructions.
const MAX_SERVER_BYTES: usize = 64 * 1024;
/// Maximum length of the line about one prompt.
const MAX_PROMPT_BYTES: usize = 512;
/// Maximum length of the list of prompts.
const MAX_PROMPTS_BYTES: usize = 8 * 1024;

/// Returns the server's own instructions, followed by a line for each of its prompts.
pub(super) fn instructions(server_text: Option<&str>, prompts: &[RawJson]) -> Option<String> {
    let server_text = server_text.map(|words| clipped(words, MAX_SERVER_BYTES).into_owned());
    let mut lines = String::new();
    for (number, prompt) in prompts.iter().enumerate() {
        let line = prompt_line(prompt);
        if lines.len() + line.len() > MAX_PROMPTS_BYTES {
            let n_more = prompts.len() - number;
            lines.extend(["\n- and ", &n_more.to_string(), " more"]);
            break;
        }
        lines.push_str(&line);
    }
    if lines.is_empty() {
        return server_text;
    }
    let server_text = server_text.as_deref().map(str::trim_end).filter(|words| !words.is_empty());
    let server_text = server_text.map(|words| format!("{words}\n\n")).unwrap_or_default();
    Some(format!("{server_text}Prompts of this server:{lines}"))
}

/// Returns the line about a prompt.
fn prompt_line(prompt: &RawJson) -> String {
    let text = |name: &str| {
        let text = prompt.get(name).and_then(|text| text.read::<String>().ok()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (name, description) = (text("name"), text("description"));
    let words = if description.is_empty() { name } else { format!("{name}: {description}") };
    format!("\n- {}", clipped(&words, MAX_PROMPT_BYTES))
}
