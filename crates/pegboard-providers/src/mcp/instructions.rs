//! What a server says about itself, for a model.

use pegboard_core::text::clipped;
use pegboard_json::RawJson;

/// How much of a server's own words is kept.
const MAX_OWN_BYTES: usize = 64 * 1024;
/// How much is told of one prompt.
const MAX_PROMPT_BYTES: usize = 512;
/// How much is told of all prompts.
const MAX_PROMPTS_BYTES: usize = 8 * 1024;

/// The server's own words, then a line for each of its prompts.
pub(super) fn instructions(own: Option<&str>, prompts: &[RawJson]) -> Option<String> {
    let own = own.map(|words| clipped(words, MAX_OWN_BYTES).into_owned());
    let mut lines = String::new();
    for (number, prompt) in prompts.iter().enumerate() {
        let line = line(prompt);
        if lines.len() + line.len() > MAX_PROMPTS_BYTES {
            let n_more = prompts.len() - number;
            lines.extend(["\n- and ", &n_more.to_string(), " more"]);
            break;
        }
        lines.push_str(&line);
    }
    if lines.is_empty() {
        return own;
    }
    let own = own.as_deref().map(str::trim_end).filter(|words| !words.is_empty());
    let own = own.map(|words| format!("{words}\n\n")).unwrap_or_default();
    Some(format!("{own}Prompts of this server:{lines}"))
}

/// Everything about a prompt stands on its line.
fn line(prompt: &RawJson) -> String {
    let text = |name: &str| {
        let text = prompt.get(name).and_then(|text| text.read::<String>().ok()).unwrap_or_default();
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let (name, description) = (text("name"), text("description"));
    let words = if description.is_empty() { name } else { format!("{name}: {description}") };
    format!("\n- {}", clipped(&words, MAX_PROMPT_BYTES))
}
