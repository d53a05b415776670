"""Word problems for the measurements: short, of the kind the demo pair knows, and written for this project."""

PROBLEMS = (
    "Tom has 3 boxes with 12 pencils in each. He gives 9 pencils to his sister. How many pencils does he have left?",
    "A baker sells 15 loaves in the morning and twice as many in the afternoon. Each loaf costs $3. "
    "How much money does he make in a day?",
    "Lena reads 20 pages a day from Monday to Friday and 35 pages on each day of the weekend. "
    "How many pages does she read in a week?",
    "A farmer has 48 eggs. He packs them in cartons of 6 and sells each carton for $4. How much does he earn?",
    "Maya saves $5 a week. She wants to buy a bicycle that costs $120, and she already has $45. "
    "How many weeks does she have to save?",
    "There are 24 children in a class. One third of them walk to school, and the others take the bus. "
    "How many children take the bus?",
    "A train travels 60 miles in one hour. How far does it travel in 4 hours, if it stops for one of them?",
    "Sam buys 2 shirts for $18 each and a hat for $12. He pays with a $100 bill. How much change does he get?",
    "A garden has 7 rows of 9 tomato plants. Each plant gives 8 tomatoes. How many tomatoes does the garden give?",
    "Nina is 4 years older than her brother, who is twice as old as the dog. The dog is 5. How old is Nina?",
    "A shop has 90 apples. It sells 40 on Monday and half of the rest on Tuesday. How many apples are left?",
    "Omar runs 3 miles on each of 5 days and 6 miles on Saturday. How many miles does he run in 4 weeks?",
    "A jug holds 2 liters. How many glasses of 250 milliliters can be filled from 3 jugs?",
    "Ella bakes 60 cookies. She keeps 12 and shares the others equally among 8 friends. How many does each friend get?",
    "A worker earns $14 an hour for 8 hours and $21 for each hour after that. How much does he earn for 10 hours?",
    "A library has 5 shelves with 40 books each. 35 books are lent and 12 are returned. How many books are there now?",
)
