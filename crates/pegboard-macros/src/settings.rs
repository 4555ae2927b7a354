//! What stands in the parentheses of `#[tool(…)]`.

use std::fmt;

use proc_macro2::TokenStream;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Expr, ExprLit, Ident, Lit, LitBool, LitStr, Path, Token, parenthesized, parse_quote, token};

use crate::mistakes::Mistakes;
use crate::nearest::nearest;

const NAMES: [&str; 11] = [
    "name",
    "title",
    "description",
    "tags",
    "read_only",
    "destructive",
    "idempotent",
    "open_world",
    "input_schema",
    "output_schema",
    "crate",
];

/// What a tool says of itself beside its signature.
pub(crate) struct Settings {
    pub(crate) name: Option<Expr>,
    pub(crate) title: Option<Expr>,
    pub(crate) description: Option<Expr>,
    pub(crate) tags: Vec<LitStr>,
    /// The flags that were given, by the names they have in `Annotations`.
    pub(crate) annotations: Vec<(Ident, LitBool)>,
    pub(crate) input_schema: Option<Expr>,
    pub(crate) output_schema: Option<Expr>,
    /// Where the generated code finds pegboard.
    pub(crate) pegboard: Path,
}

impl Settings {
    /// Reads the settings that can be understood and notes what is wrong with the others.
    pub(crate) fn read(tokens: TokenStream, mistakes: &mut Mistakes) -> Self {
        let mut settings = Self {
            name: None,
            title: None,
            description: None,
            tags: Vec::new(),
            annotations: Vec::new(),
            input_schema: None,
            output_schema: None,
            pegboard: parse_quote!(::pegboard),
        };
        let list = mistakes.ok(Punctuated::<Setting, Token![,]>::parse_terminated.parse2(tokens));
        let mut seen: Vec<Ident> = Vec::new();
        for setting in list.into_iter().flatten() {
            if seen.contains(&setting.name) {
                let name = &setting.name;
                mistakes.at(name, format_args!("`{name}` is given twice: keep one of them"));
                continue;
            }
            seen.push(setting.name.clone());
            mistakes.ok(settings.set(&setting));
        }
        settings
    }

    fn set(&mut self, setting: &Setting) -> syn::Result<()> {
        match setting.name.to_string().as_str() {
            "name" => self.name = Some(setting.text()?),
            "title" => self.title = Some(setting.text()?),
            "description" => self.description = Some(setting.text()?),
            "tags" => self.tags = setting.texts()?,
            "read_only" | "destructive" | "idempotent" | "open_world" => {
                self.annotations.push((setting.name.clone(), setting.flag()?));
            }
            "input_schema" => self.input_schema = Some(setting.schema()?),
            "output_schema" => self.output_schema = Some(setting.schema()?),
            "crate" => self.pegboard = setting.path()?,
            unknown => return Err(syn::Error::new_spanned(&setting.name, unknown_setting(unknown))),
        }
        Ok(())
    }
}

/// One setting as it is written.
struct Setting {
    name: Ident,
    value: Value,
}

enum Value {
    /// `read_only`
    Absent,
    /// `name = "…"`
    One(Expr),
    /// `tags("…", "…")`
    Many(Vec<Expr>),
}

impl Parse for Setting {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let name = Ident::parse_any(input).map_err(|error| {
            let hint = format!(
                "a setting of `#[tool]` starts with its name, such as `description = \"…\"`\n{}",
                known()
            );
            syn::Error::new(error.span(), hint)
        })?;
        let value = if input.peek(token::Paren) {
            let list;
            parenthesized!(list in input);
            Value::Many(
                Punctuated::<Expr, Token![,]>::parse_terminated(&list)?.into_iter().map(bare).collect(),
            )
        } else if input.parse::<Option<Token![=]>>()?.is_some() {
            Value::One(bare(input.parse()?))
        } else {
            Value::Absent
        };
        Ok(Self { name, value })
    }
}

impl Setting {
    fn text(&self) -> syn::Result<Expr> {
        let name = &self.name;
        match &self.value {
            Value::One(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) if text.value().trim().is_empty() => {
                Err(self.wrong(format_args!("`{name}` must not be empty")))
            }
            Value::One(text @ (Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) | Expr::Macro(_))) => {
                Ok(text.clone())
            }
            Value::Absent | Value::One(_) | Value::Many(_) => {
                Err(self.wrong(format_args!("`{name}` is a text: `{name} = \"…\"`")))
            }
        }
    }

    fn texts(&self) -> syn::Result<Vec<LitStr>> {
        let items: Option<Vec<&Expr>> = match &self.value {
            Value::One(Expr::Array(list)) => Some(list.elems.iter().collect()),
            Value::Many(list) => Some(list.iter().collect()),
            Value::Absent | Value::One(_) => None,
        };
        let texts = items.and_then(|items| items.into_iter().map(string).collect());
        texts.ok_or_else(|| self.wrong("`tags` is a list of texts: `tags(\"…\", \"…\")`"))
    }

    fn flag(&self) -> syn::Result<LitBool> {
        let name = &self.name;
        match &self.value {
            Value::Absent => Ok(LitBool::new(true, name.span())),
            Value::One(Expr::Lit(ExprLit { lit: Lit::Bool(flag), .. })) => Ok(flag.clone()),
            Value::One(_) | Value::Many(_) => {
                Err(self.wrong(format_args!("`{name}` is a flag: write `{name}`, or `{name} = false`")))
            }
        }
    }

    fn schema(&self) -> syn::Result<Expr> {
        let name = &self.name;
        match &self.value {
            Value::One(schema) => Ok(schema.clone()),
            Value::Absent | Value::Many(_) => {
                Err(self.wrong(format_args!("`{name}` is a schema: `{name} = json!({{…}})`")))
            }
        }
    }

    fn path(&self) -> syn::Result<Path> {
        match &self.value {
            Value::One(Expr::Path(path)) => Ok(path.path.clone()),
            Value::Absent | Value::One(_) | Value::Many(_) => {
                Err(self.wrong("`crate` is the path where pegboard is found: `crate = ::toolkit::pegboard`"))
            }
        }
    }

    /// A mistake in this setting, shown at its value if it has one.
    fn wrong(&self, message: impl fmt::Display) -> syn::Error {
        match &self.value {
            Value::One(value) => syn::Error::new_spanned(value, message),
            Value::Absent | Value::Many(_) => syn::Error::new_spanned(&self.name, message),
        }
    }
}

fn unknown_setting(name: &str) -> String {
    match nearest(name, &NAMES) {
        Some(meant) => format!("`#[tool]` has no setting `{name}`: did you mean `{meant}`?\n{}", known()),
        None => format!("`#[tool]` has no setting `{name}`\n{}", known()),
    }
}

fn known() -> String {
    format!("there are: {}", NAMES.join(", "))
}

fn string(expression: &Expr) -> Option<LitStr> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.clone()),
        _ => None,
    }
}

/// The expression without the invisible group that a `macro_rules!` fragment comes in.
fn bare(expression: Expr) -> Expr {
    match expression {
        Expr::Group(group) => bare(*group.expr),
        other => other,
    }
}
