//! Texts, addresses and bodies with places that a call's parameters fill in.

use std::fmt;

use serde_json::Value;

/// What a place begins with.
const OPEN: &str = "${parameters.";

/// A text with places in it, such as `Bearer ${parameters.token}`. It may hold secrets, so it is not printed.
///
/// ```
/// use pegboard_core::settings::rest::{Part, Template};
///
/// let template = Template::parse("a ${parameters.name}!").unwrap();
/// assert!(matches!(template.parts(), [Part::Text(_), Part::Parameter(name), Part::Text(_)] if name == "name"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Template(Vec<Part>);

/// A piece of a template.
#[derive(Clone, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Text(String),
    /// The place of a parameter.
    Parameter(String),
}

impl Template {
    /// Reads a text.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (name, tail) = after.split_once('}').ok_or(InvalidTemplate::Unclosed)?;
            if name.is_empty() {
                return Err(InvalidTemplate::Nameless);
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Parameter(name.to_owned()));
            rest = tail;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }

    /// Its pieces, in order.
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The parameter that is all of it.
    pub fn sole(&self) -> Option<&str> {
        match self.0.as_slice() {
            [Part::Parameter(name)] => Some(name),
            _ => None,
        }
    }

    /// The parameters in it.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Parameter(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// Its pieces between separators, which count only where they are text.
    fn split(&self, separator: char) -> Vec<Self> {
        let mut pieces = vec![Self::default()];
        for part in &self.0 {
            match part {
                Part::Text(text) => {
                    for (index, piece) in text.split(separator).enumerate() {
                        if index > 0 {
                            pieces.push(Self::default());
                        }
                        if let Some(last) = pieces.last_mut().filter(|_| !piece.is_empty()) {
                            last.0.push(Part::Text(piece.to_owned()));
                        }
                    }
                }
                Part::Parameter(_) => {
                    if let Some(last) = pieces.last_mut() {
                        last.0.push(part.clone());
                    }
                }
            }
        }
        pieces
    }

    /// What stands before the first of a separator and what stands behind it, if there is one.
    fn split_once(&self, separator: char) -> (Self, Option<Self>) {
        for (index, part) in self.0.iter().enumerate() {
            if let Part::Text(text) = part
                && let Some((before, after)) = text.split_once(separator)
            {
                let texts = |text: &str| (!text.is_empty()).then(|| Part::Text(text.to_owned()));
                let head = self.0[..index].iter().cloned().chain(texts(before)).collect();
                let tail = texts(after).into_iter().chain(self.0[index + 1..].iter().cloned()).collect();
                return (Self(head), Some(Self(tail)));
            }
        }
        (self.clone(), None)
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Template")
    }
}

/// An address with places in its path and its query. Who is asked is always written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Scheme, host and port.
    pub origin: String,
    /// The parts of the path, each of which stays one part whatever is filled in.
    pub path: Vec<Template>,
    /// The pairs of the query.
    pub query: Vec<Template>,
}

impl UrlTemplate {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let text = text.trim();
        let n_scheme = ["https://", "http://"].into_iter().find_map(|scheme| {
            text.get(..scheme.len()).filter(|start| start.eq_ignore_ascii_case(scheme)).map(str::len)
        });
        let n_scheme = n_scheme.ok_or(InvalidTemplate::NotWeb)?;
        let template = Template::parse(text)?;
        let is_odd = |each: char| each.is_control() || each == '\\';
        if template.0.iter().any(|part| matches!(part, Part::Text(text) if text.contains(is_odd))) {
            return Err(InvalidTemplate::OddCharacter);
        }
        let host = text[n_scheme..].split(['/', '?', '#']).next().unwrap_or_default();
        if host.contains("${") {
            return Err(InvalidTemplate::OpenHost);
        }
        if host.is_empty() {
            return Err(InvalidTemplate::NotWeb);
        }
        if host.contains('@') {
            return Err(InvalidTemplate::Credentials);
        }
        let origin = text[..n_scheme + host.len()].to_owned();
        let (template, fragment) = Template::parse(&text[origin.len()..])?.split_once('#');
        if fragment.is_some() {
            return Err(InvalidTemplate::Fragment);
        }
        let (path, query) = template.split_once('?');
        let mut path = path.split('/');
        // What stands before the first slash is nothing.
        path.remove(0);
        let query = query.map(|query| query.split('&')).unwrap_or_default();
        Ok(Self { origin, path, query: query.into_iter().filter(|pair| !pair.0.is_empty()).collect() })
    }

    /// The parameters in it.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.path.iter().chain(&self.query).flat_map(Template::parameters)
    }
}

/// A body with places in it.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyTemplate {
    /// A text.
    Text(Template),
    /// A list or an object, and what is in it.
    Data(DataTemplate),
}

/// A value with places in its texts. Its `Debug` shows nothing that may be secret.
#[derive(Clone, PartialEq)]
pub enum DataTemplate {
    /// Always the same.
    Constant(Value),
    /// A text; one that is a place and nothing else becomes the value itself, whatever its type.
    Text(Template),
    /// A list.
    List(Vec<DataTemplate>),
    /// An object.
    Object(Vec<(String, DataTemplate)>),
}

impl BodyTemplate {
    /// Reads a body.
    pub fn parse(body: &Value) -> Result<Self, InvalidTemplate> {
        match body {
            Value::String(text) => Template::parse(text).map(Self::Text),
            other => DataTemplate::parse(other).map(Self::Data),
        }
    }

    /// The parameters in it.
    pub fn parameters(&self) -> Vec<&str> {
        match self {
            Self::Text(text) => text.parameters().collect(),
            Self::Data(data) => data.parameters(),
        }
    }
}

impl DataTemplate {
    fn parse(value: &Value) -> Result<Self, InvalidTemplate> {
        Ok(match value {
            Value::String(text) => Self::Text(Template::parse(text)?),
            Value::Array(items) => Self::List(items.iter().map(Self::parse).collect::<Result<_, _>>()?),
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| Ok((name.clone(), Self::parse(value)?)));
                Self::Object(members.collect::<Result<_, _>>()?)
            }
            constant => Self::Constant(constant.clone()),
        })
    }

    fn parameters(&self) -> Vec<&str> {
        match self {
            Self::Constant(_) => Vec::new(),
            Self::Text(text) => text.parameters().collect(),
            Self::List(items) => items.iter().flat_map(Self::parameters).collect(),
            Self::Object(members) => members.iter().flat_map(|(_, value)| value.parameters()).collect(),
        }
    }
}

impl fmt::Debug for DataTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataTemplate")
    }
}

/// Why a text is no template. No text of it quotes the text, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A place is not closed.
    #[error("a ${{parameters. is not closed: end it with }}")]
    Unclosed,
    /// A place has no name.
    #[error("a ${{parameters.}} has no name")]
    Nameless,
    /// An address is none of a web service.
    #[error("this is no address of a web service: write one like https://example.com/things")]
    NotWeb,
    /// A parameter would choose who is asked.
    #[error("a parameter cannot stand in the host or port: whoever calls the tool would choose who is asked")]
    OpenHost,
    /// An address holds a name and a password.
    #[error("a name and password cannot stand in the address: write an Authorization header")]
    Credentials,
    /// An address has a part that is never sent.
    #[error("what stands behind # is never sent: take it away")]
    Fragment,
    /// An address has characters that different programs read differently.
    #[error("an address has no line breaks, other control characters or backslashes")]
    OddCharacter,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &Template) -> String {
        let parts = template.parts().iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Parameter(name) => format!("<{name}>"),
        });
        parts.collect()
    }

    #[test]
    fn an_address_is_taken_apart_before_anything_is_filled_in() {
        let check = |text: &str| {
            let url = UrlTemplate::parse(text).map_err(|error| format!("{error:?}"))?;
            let all = |list: &[Template]| list.iter().map(shown).collect::<Vec<_>>().join(" , ");
            Ok::<_, String>(format!("{} | {} | {}", url.origin, all(&url.path), all(&url.query)))
        };
        let cases = [
            ("https://x.org", Ok("https://x.org |  | ")),
            ("HTTPS://x.org:8080/", Ok("HTTPS://x.org:8080 |  | ")),
            ("https://x.org/u/${parameters.id}", Ok("https://x.org | u , <id> | ")),
            ("https://x.org/a${parameters.b/?&c}d", Ok("https://x.org | a<b/?&c>d | ")),
            (
                "https://x.org/a/?q=${parameters.q}&k=1&&${parameters.r}",
                Ok("https://x.org | a ,  | q=<q> , k=1 , <r>"),
            ),
            ("https://x.org?q=${parameters.q}", Ok("https://x.org |  | q=<q>")),
            ("http://127.0.0.1/?a=b?c", Ok("http://127.0.0.1 |  | a=b?c")),
            ("https://${parameters.host}/", Err("OpenHost")),
            ("https://x.org:${parameters.port}/", Err("OpenHost")),
            ("https://x.${parameters.tld}", Err("OpenHost")),
            ("${parameters.scheme}://x.org/", Err("NotWeb")),
            ("ftp://x.org/", Err("NotWeb")),
            ("x.org/y", Err("NotWeb")),
            ("https:///x", Err("NotWeb")),
            ("https://u:p@x.org/", Err("Credentials")),
            ("https://x.org/#part", Err("Fragment")),
            ("https://x.org\\@y.org/", Err("OddCharacter")),
            ("https://x.org/\n", Ok("https://x.org |  | ")),
            ("https://x.org/a\tb", Err("OddCharacter")),
            ("https://x.org/${parameters.id", Err("Unclosed")),
            ("https://x.org/${parameters.}", Err("Nameless")),
        ];
        for (text, expected) in cases {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(check(text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_place_is_text() {
        for text in ["", "$", "${", "${parameters", "${parameter.x}", "$parameters.x", "}{"] {
            let template = Template::parse(text).unwrap();
            assert_eq!((shown(&template).as_str(), template.parameters().count()), (text, 0));
        }
    }
}
