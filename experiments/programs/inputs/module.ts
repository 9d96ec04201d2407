let x: number = 1; export const f = (a: string) => a + x; console.log(f("a"))
