//! Forms: their fields, and the values that people enter.

use maud::{Markup, html};
use parlor_client::{Elicitation, FieldKind, FormField};
use parlor_json::{Json, Object};

use super::AnswerError;
use crate::assets::icon;
use crate::render::content_block::is_web_or_mail;
use crate::render::text::{clean, clean_line, percent_encoded};

/// A field with more options than this is a list that opens.
const MAX_RADIOS: usize = 12;

/// The name of the field with this index in the form of a request. The inbox has several forms.
fn field_name(request: &str, index: usize) -> String {
    format!("{}.{index}", percent_encoded(request))
}

/// The fields of a form, or the link that it asks to open.
pub(super) fn html(form: &Elicitation, request: &str) -> Markup {
    html! {
        div.form {
            @if !form.message.trim().is_empty() { p.written { (clean(&form.message)) } }
            @if let Some(url) = &form.url {
                // The whole address is shown: a person decides by it.
                p { code { (clean(url)) } }
                @if is_web_or_mail(url) {
                    p { a.btn href=(clean_line(url)) rel="noopener noreferrer nofollow" target="_blank" { (icon("link", "")) "Open the link" } }
                }
            }
            @for (index, field) in form.fields.iter().enumerate() { (field_html(field, &field_name(request, index))) }
        }
    }
}

fn field_html(field: &FormField, name: &str) -> Markup {
    let default = field.default.as_ref();
    let is_chosen = |value: &Json| default.is_some_and(|default| default.as_str() == value.as_str());
    let text_default = default.and_then(|default| Some(default.to_text()?.into_owned()));
    let head = html! {
        (clean_line(&field.title))
        @if !field.is_required { " " span.muted { "(optional)" } }
        @if let Some(text) = field.description.as_deref().filter(|text| !text.trim().is_empty()) {
            " " span.muted { (clean_line(text)) }
        }
        @if let Some(limits) = field.limits() { " " span.muted { "(" (limits) ")" } }
    };
    match &field.kind {
        FieldKind::One(options) if options.len() <= MAX_RADIOS => html! {
            fieldset {
                legend { (head) }
                @for (choice, (value, title)) in options.iter().enumerate() {
                    label {
                        input id=(format!("{name}.{choice}")) type="radio" name=(name) value=(choice) checked[is_chosen(value)] required[field.is_required];
                        span { (clean_line(title)) }
                    }
                }
            }
        },
        FieldKind::One(options) => html! {
            label.col {
                span { (head) }
                select.field id=(name) name=(name) required[field.is_required] {
                    option value="" { "Choose one" }
                    @for (choice, (value, title)) in options.iter().enumerate() {
                        option value=(choice) selected[is_chosen(value)] { (clean_line(title)) }
                    }
                }
            }
        },
        FieldKind::Many(options) => {
            let defaults = default.and_then(Json::elements).unwrap_or_default();
            let is_default = |value: &Json| defaults.iter().any(|default| default.as_str() == value.as_str());
            html! {
                fieldset {
                    legend { (head) }
                    @for (choice, (value, title)) in options.iter().enumerate() {
                        label {
                            input id=(format!("{name}.{choice}")) type="checkbox" name=(name) value=(choice) checked[is_default(value)];
                            span { (clean_line(title)) }
                        }
                    }
                }
            }
        }
        FieldKind::Boolean => html! {
            label {
                input id=(name) type="checkbox" name=(name) value="true" checked[default.and_then(Json::as_bool) == Some(true)];
                span { (head) }
            }
        },
        FieldKind::Number { is_whole, min, max } => html! {
            label.col {
                span { (head) }
                input.field id=(name) type="number" name=(name) step=(if *is_whole { "1" } else { "any" })
                    min=[*min] max=[*max] value=[default.map(|default| clean_line(default.as_str()))] required[field.is_required];
            }
        },
        FieldKind::Text { .. } | _ => html! {
            label.col {
                span { (head) }
                input.field id=(name) type=(if field.is_secret { "password" } else { "text" }) name=(name)
                    value=[text_default.map(|text| clean_line(&text))] required[field.is_required] autocomplete="off";
            }
        },
    }
}

/// The result that accepts a form with the values that a person entered, by the names of its fields.
pub(super) fn answer(
    form: &Elicitation,
    request: &str,
    values: &dyn Fn(&str) -> Vec<String>,
) -> Result<Object, AnswerError> {
    let mut entered = Object::default();
    for (index, field) in form.fields.iter().enumerate() {
        let rejected =
            |reason: &str| AnswerError::Rejected(format!("{}: {reason}", clean_line(&field.title)));
        let value = field_value(field, &values(&field_name(request, index)));
        match value.map_err(|reason| rejected(&reason))? {
            Some(value) => entered.set(field.name.clone(), value),
            None if field.is_required => return Err(rejected("a value is required")),
            None => {}
        }
    }
    Ok(form.accept(&entered))
}

/// The value of a field from what a person entered; `None` if it is empty, or why it is rejected.
fn field_value(field: &FormField, entered: &[String]) -> Result<Option<Json>, String> {
    let chosen = |options: &[(Json, String)], choice: &String| {
        let value = choice.parse::<usize>().ok().and_then(|index| options.get(index));
        value.map(|(value, _)| value.clone()).ok_or_else(|| "there is no such choice".to_owned())
    };
    let first = entered.first().filter(|text| !text.trim().is_empty());
    match &field.kind {
        FieldKind::One(options) => first.map(|choice| chosen(options, choice)).transpose(),
        FieldKind::Many(options) => {
            let values: Vec<Json> =
                entered.iter().map(|choice| chosen(options, choice)).collect::<Result<_, _>>()?;
            Ok((!values.is_empty()).then(|| Json::array(values)))
        }
        FieldKind::Boolean => Ok(Some(Json::from(first.is_some_and(|value| value == "true")))),
        FieldKind::Text { .. } | FieldKind::Number { .. } | _ => {
            first.map(|text| field.parse_text(text)).transpose()
        }
    }
}
