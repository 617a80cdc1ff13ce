use crate::generate::samples;
use crate::schema::{Call, Version};
use parlor_dialect::{Dialect, Side, Translator};
#[test]
fn samples_are_valid() {
    for dialect in [Dialect::V1, Dialect::V2] {
        for method in &Version::of(dialect).methods {
            let shapes = match &method.call {
                Call::Request { params, result } => vec![params, result],
                Call::Notification { params } => vec![params],
            };
            for shape in shapes {
                let all = samples(&shape.schema, &shape.schema);
                println!("{dialect} {} {} {}", method.name, shape.schema["title"], all.len());
                for s in all {
                    for p in shape.problems(&s) {
                        println!("BAD {dialect} {} {p}\n   {s}", method.name);
                    }
                }
            }
        }
    }
    panic!();
}
